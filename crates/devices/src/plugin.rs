//! `devices plugin`: checks libraries with backends, and writes their manifests.

use std::io::{self, Write};
use std::process::ExitCode;

use device_plugin::tool::{self, Check, Manifest, NoManifest};

use crate::Failure;
use crate::arguments::{Opening, Plugin};

pub(crate) fn run(arguments: Plugin) -> Result<ExitCode, Failure> {
    // Not locked: the panic hook of another thread prints too.
    let mut output = io::stdout();
    let is_well = match arguments {
        Plugin::Check { files, opening } => {
            tool::check(&Check { files, opening: opening.into() }, &mut output)?
        }
        Plugin::Manifest { file, name, group, entry, sha256, opening } => {
            let manifest = Manifest { file, name, group, entry, sha256, opening: opening.into() };
            let text = tool::manifest(&manifest).map_err(|error| match error {
                NoManifest::Usage(message) => Failure::Usage(message),
                NoManifest::Problem(message) => Failure::Other(message),
            })?;
            output.write_all(text.as_bytes())?;
            true
        }
    };
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl From<Opening> for tool::Opening {
    fn from(Opening { trust_any_owner, time_limit }: Opening) -> Self {
        Self { any_owner: trust_any_owner, limit: time_limit }
    }
}
