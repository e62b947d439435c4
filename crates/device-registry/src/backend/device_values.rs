//! What kernels keep with an open device, such as compiled pipelines.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::backend::BackendError;
use crate::sync::{Mutex, lock};

/// A value of each type, until the device is closed or reset.
#[derive(Default)]
pub(crate) struct DeviceValues(Mutex<Values>);

#[derive(Default)]
struct Values {
    /// There are few: one for each kernel set.
    by_type: Vec<(TypeId, Value)>,
    has_ended: bool,
}

type Value = Arc<dyn Any + Send + Sync>;

impl DeviceValues {
    /// The value of a type. `make` makes it, with no lock held, if there is none. If two threads make one,
    /// the first one's is kept. After the device's end, none is kept.
    pub(crate) fn get_or_make<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<Arc<T>, BackendError> {
        let of_type = |values: &Values| {
            let found = values.by_type.iter().find(|(id, _)| *id == TypeId::of::<T>());
            found.map(|(_, value)| Arc::clone(value))
        };
        let known = of_type(&lock(&self.0));
        if let Some(value) = known {
            return Ok(downcast(value));
        }
        let made: Value = Arc::new(make()?);
        let mut values = lock(&self.0);
        let value = match of_type(&values) {
            Some(earlier) => earlier,
            None => {
                if !values.has_ended {
                    values.by_type.push((TypeId::of::<T>(), Arc::clone(&made)));
                }
                Arc::clone(&made)
            }
        };
        // Without the lock, as dropping the value that is not kept runs foreign code.
        drop(values);
        drop(made);
        Ok(downcast(value))
    }

    /// Takes the values at the end of the device; the caller drops them before it ends the driver. No later
    /// value is kept.
    pub(crate) fn end(&self) -> Box<dyn Any + Send> {
        let mut values = lock(&self.0);
        values.has_ended = true;
        Box::new(std::mem::take(&mut values.by_type))
    }
}

fn downcast<T: Any + Send + Sync>(value: Value) -> Arc<T> {
    value.downcast().unwrap_or_else(|_| unreachable!("a value is found by its type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_a_value_and_none_is_kept_after_the_end() {
        let values = DeviceValues::default();
        let number = |number: u32| values.get_or_make(|| Ok(number)).unwrap();
        assert_eq!((*number(1), *number(2)), (1, 1));
        assert_eq!(*values.get_or_make(|| Ok("text")).unwrap(), "text");
        let kept = number(3);
        drop(values.end());
        assert_eq!(Arc::strong_count(&kept), 1);
        assert_eq!((*number(4), *number(5)), (4, 5));
    }

    #[test]
    fn a_value_that_cannot_be_made_is_made_by_the_next_call() {
        let values = DeviceValues::default();
        let failed = values.get_or_make::<u32>(|| Err(BackendError::other("no compiler")));
        assert_eq!(failed.unwrap_err().message(), "no compiler");
        assert_eq!(*values.get_or_make(|| Ok(7_u32)).unwrap(), 7);
    }

    #[test]
    fn a_value_may_be_made_within_the_making_of_another_and_the_first_is_kept() {
        let values = DeviceValues::default();
        let outer = values.get_or_make(|| Ok(1 + *values.get_or_make(|| Ok(10_u32))?)).unwrap();
        assert_eq!(*outer, 10);
    }
}
