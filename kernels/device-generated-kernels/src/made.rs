//! Kernels that were made, by what their texts are generated from.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Recipe;
use crate::quick_hash::QuickHash;

/// The kernels of one context, each made at its first use.
pub struct Kernels<K>(Mutex<HashMap<Recipe, Arc<Cell<K>>, QuickHash>>);

/// A kernel, once it is made. The lock is held while it is: another thread that needs it waits, and all
/// others do not.
struct Cell<K>(Mutex<Option<Arc<K>>>);

impl<K> Default for Kernels<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K> Kernels<K> {
    /// The kernel of a recipe, which `make` makes if there is none.
    ///
    /// # Errors
    ///
    /// What `make` returns. The next call tries again.
    pub fn get_or_make<E>(&self, recipe: &Recipe, make: impl FnOnce() -> Result<K, E>) -> Result<Arc<K>, E> {
        let cell = {
            let mut kernels = self.0.lock();
            match kernels.get(recipe) {
                Some(cell) => Arc::clone(cell),
                None => Arc::clone(
                    kernels.entry(recipe.clone()).or_insert_with(|| Arc::new(Cell(Mutex::new(None)))),
                ),
            }
        };
        let mut kernel = cell.0.lock();
        if let Some(kernel) = &*kernel {
            return Ok(Arc::clone(kernel));
        }
        Ok(Arc::clone(kernel.insert(Arc::new(make()?))))
    }
}
