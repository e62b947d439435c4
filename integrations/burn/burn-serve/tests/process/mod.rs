//! Processes with a time limit: none hangs a test, and none outlives it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for a line or for the end of a process. A client repeats its first connection for 16
/// s.
const LIMIT: Duration = Duration::from_secs(60);

/// A child process, and what it printed on both of its outputs.
pub(crate) struct Process {
    child: Child,
    output: Arc<Output>,
}

#[derive(Default)]
struct Output {
    text: Mutex<String>,
    grew: Condvar,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program was built with this test");
        let output = Arc::new(Output::default());
        collect(child.stdout.take().unwrap(), Arc::clone(&output));
        collect(child.stderr.take().unwrap(), Arc::clone(&output));
        Self { child, output }
    }

    /// Waits until the process has printed a line with this text, and returns the line.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let start = Instant::now();
        let mut printed = self.output.text.lock().unwrap();
        loop {
            if let Some(line) = printed.lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
            assert!(start.elapsed() < LIMIT, "`{text}` was not printed: {printed}");
            printed = self.output.grew.wait_timeout(printed, Duration::from_millis(100)).unwrap().0;
        }
    }

    /// Waits for the end of the process, and returns its exit code and all it printed.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            let printed = self.output.text.lock().unwrap().clone();
            assert!(start.elapsed() < LIMIT, "the process does not end: {printed}");
            thread::sleep(Duration::from_millis(20));
        };
        // The threads that collect the output hold a clone each until they reach its end.
        while Arc::strong_count(&self.output) > 1 && start.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(5));
        }
        (status.code(), self.output.text.lock().unwrap().clone())
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills the process, which cannot clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal, such as `TERM`.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(pipe: impl Read + Send + 'static, output: Arc<Output>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            *output.text.lock().unwrap() += &(line + "\n");
            output.grew.notify_all();
        }
    });
}

/// A server that listens.
pub(crate) struct Server {
    /// Its process.
    pub(crate) process: Process,
    /// The URL for clients.
    pub(crate) url: String,
    /// The devices with their indices, as it prints them.
    pub(crate) devices: String,
}

/// Starts a server for a list of devices, on a port that the system chooses.
pub(crate) fn server(folder: &Folder, devices: &str) -> Server {
    let token = folder.token("token");
    let arguments = ["--device", devices, "--listen", "127.0.0.1:0", "--token-file", &token];
    let mut process = Process::start(Command::new(env!("CARGO_BIN_EXE_burn-serve")).args(arguments));
    let line = process.wait_for("listening on ");
    let (url, devices) = line.trim_start_matches("listening on ").split_once(" with ").unwrap();
    Server { process, url: url.to_owned(), devices: devices.to_owned() }
}

/// The exit code and the output of a server that does not start, or of `--list`.
pub(crate) fn end_of(arguments: &[&str]) -> (Option<i32>, String) {
    Process::start(Command::new(env!("CARGO_BIN_EXE_burn-serve")).args(arguments)).end()
}

/// Starts a client that computes, and repeats it for some seconds.
pub(crate) fn client(url: &str, token_file: &str, seconds: u32) -> Process {
    Process::start(client_process(url, token_file).env("CLIENT_SECONDS", seconds.to_string()))
}

/// Starts a client like that, which watches whether the server answers within so many seconds.
pub(crate) fn watching_client(url: &str, token_file: &str, seconds: u32, limit: u32) -> Process {
    let mut command = client_process(url, token_file);
    command.env("CLIENT_SECONDS", seconds.to_string()).env("CLIENT_LIMIT", limit.to_string());
    Process::start(&mut command)
}

/// Starts a client that moves tensors until it is killed.
pub(crate) fn mover(url: &str, token_file: &str) -> Process {
    Process::start(&mut client_process(url, token_file))
}

/// A client is this test program again: Cargo does not build examples for a single test.
fn client_process(url: &str, token_file: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["client_process", "--exact", "--ignored", "--nocapture"]);
    command.env("CLIENT_URL", url).env("CLIENT_TOKEN_FILE", token_file);
    command
}

/// A folder for the files of a test, removed with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new folder.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file with a text and, on Unix, with permissions.
    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        #[cfg(not(unix))]
        let _ = mode;
        path
    }

    /// A token file that the server accepts.
    pub(crate) fn token(&self, name: &str) -> String {
        self.file(name, "a-token-for-tests\n", 0o600)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
