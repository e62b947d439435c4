//! Writes the texts of all kernels that the calls of the conformance suite need into a folder, each once:
//!
//! ```sh
//! cargo run -p device-generated-kernels --example texts -- FOLDER
//! ```

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use device_generated_kernels::{Plan, Traits};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("expected a folder")?);
    fs::create_dir_all(&folder)?;
    let mut texts = BTreeSet::new();
    for groups in [true, false] {
        let traits = Traits { doubles: true, groups, units: 8 };
        for call in device_kernels_conformance::calls() {
            let Some(plan) = Plan::of(&call, traits, &[]) else { continue };
            texts.extend(plan.steps.iter().map(|step| step.recipe.text()));
        }
    }
    for (place, text) in texts.iter().enumerate() {
        fs::write(folder.join(format!("{place:04}.cl")), text)?;
    }
    println!("{} texts", texts.len());
    Ok(())
}
