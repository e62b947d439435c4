//! The conformance suite on the backends in a folder.

use device_conformance::Suite;
use device_plugin::Plugins;

fn main() -> std::process::ExitCode {
    let folder = std::env::var_os("FOLDER").expect("FOLDER is the folder");
    let report = Plugins::new().folder(folder).install().expect("the folder is absolute");
    assert_eq!(report.installed().len(), 3, "{report}");
    Suite::new().backend("myc").backend("mycqueue").backend("openreg").run()
}
