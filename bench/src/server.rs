//! Servers and their load generators: each server starts in a folder of its own, on a free port or
//! a socket there, and leaves nothing behind.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::files::variable;

/// The user of postgres and squid if the bench runs as root: they refuse to run as root.
const POSTGRES_USER: &str = "postgres";
const SQUID_USER: &str = "proxy";
const MARIADB_USER: &str = "mysql";

/// The longest time in which a server starts or ends.
const TRANSITION_TIMEOUT: Duration = Duration::from_secs(60);

/// Loads a server once; returns the requests per second.
pub(crate) type Load = Box<dyn Fn() -> Result<f64, String>>;
/// Starts a server in a folder; returns its load generator, and the processes to end.
pub(crate) type Start = fn(&Path) -> Result<Serving, String>;

/// A running server.
pub(crate) struct Serving {
    pub(crate) load: Load,
    /// Its process, followed by the processes that it needs.
    processes: Vec<Process>,
    /// Finds the process that works on the load, if that is another one.
    worker: Option<Box<dyn Fn() -> Result<u32, String>>>,
}

impl Serving {
    pub(crate) fn id(&self) -> u32 {
        self.processes[0].0.id()
    }

    /// Returns the process that works on the load.
    pub(crate) fn worker(&self) -> Result<u32, String> {
        self.worker.as_ref().map_or_else(|| Ok(self.id()), |find| find())
    }
}

/// A process that is asked to end on drop, and killed if it does not.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let signalled = Pid::from_raw(self.0.id().cast_signed())
            .is_some_and(|id| kill_process(id, Signal::INT).is_ok());
        if !signalled || until(|| !matches!(self.0.try_wait(), Ok(None))).is_err() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Creates a folder that servers of other users can enter.
pub(crate) fn folder() -> Result<TempDir, String> {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).map_err(|e| e.to_string())?;
    Ok(folder)
}

fn start(command: &mut Command) -> Result<Process, String> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().map(Process).map_err(|e| format!("{:?}: {e}", command.get_program()))
}

/// Repeats an attempt until it succeeds.
fn until(mut works: impl FnMut() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !works() {
        if began.elapsed() > TRANSITION_TIMEOUT {
            return Err("the server does not answer".into());
        }
        // The server is being started or ended; nothing is measured then.
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Returns the output of a command, or an error if it fails.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr)))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns a free port of this host.
fn free_port() -> Result<u16, String> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|one| one.local_addr());
    free.map(|address| address.port()).map_err(|e| e.to_string())
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a command that runs as the named user, if this process is root.
fn by(user: &str, program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(program);
    command
}

/// Gives a folder to the named user, if this process is root.
fn folder_of(user: &str, folder: &Path) -> Result<(), String> {
    fs::create_dir(folder).map_err(|e| e.to_string())?;
    if is_root() { said(Command::new("chown").arg(user).arg(folder)).map(drop) } else { Ok(()) }
}

/// Returns the requests per second that wrk reports.
fn wrk(command: &mut Command) -> Result<f64, String> {
    let output = said(command)?;
    if let Some(errors) = output.lines().find(|line| line.trim().starts_with("Non-2xx")) {
        return Err(errors.trim().to_owned());
    }
    let rate = output.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    rate.and_then(|rate| rate.trim().parse().ok()).ok_or(output)
}

pub(crate) fn redis(folder: &Path) -> Result<Serving, String> {
    let socket = folder.join("redis");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    let server = start(&mut command)?;
    until(|| UnixStream::connect(&socket).is_ok())?;
    let load = move || {
        let mut load = Command::new("redis-benchmark");
        load.arg("-s").arg(&socket).args(["--csv", "-n", "150000", "-t", "set,get"]);
        let output = said(&mut load)?;
        // A line for each kind of request: its name, requests per second, more.
        let rate = |line: &str| line.split('"').nth(3)?.parse::<f64>().ok();
        let rates: Vec<f64> = output.lines().skip(1).filter_map(rate).collect();
        if rates.len() == 2 { Ok(rates.iter().sum::<f64>() / 2.0) } else { Err(output) }
    };
    Ok(Serving { load: Box::new(load), processes: vec![server], worker: None })
}

/// Serves one file under every name; returns the port.
fn files(folder: &Path, size: usize) -> Result<(Process, u16), String> {
    let port = free_port()?;
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/errors; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {0}; expires 1h;\n\
         location / {{ try_files /file =404; }} }} }}\n",
        folder.display()
    );
    let settings = folder.join("nginx.conf");
    write(&settings, &text)?;
    write(&folder.join("file"), &"hello\n".repeat(size / 6))?;
    let server = start(Command::new("nginx").arg("-c").arg(&settings))?;
    until(|| listens(port))?;
    Ok((server, port))
}

pub(crate) fn nginx(folder: &Path) -> Result<Serving, String> {
    let (server, port) = files(folder, 6)?;
    let load = move || {
        let mut load = Command::new("wrk");
        wrk(load.args(["-c", "16", "-t", "1", "-d", "2", &format!("http://127.0.0.1:{port}/")]))
    };
    Ok(Serving { load: Box::new(load), processes: vec![server], worker: None })
}

/// Starts squid with 4,000 objects of 12 KB, a third of them in its memory and all of them in its
/// files, in front of nginx.
pub(crate) fn squid(folder: &Path) -> Result<Serving, String> {
    let (origin, behind) = files(folder, 12_000)?;
    let (port, own) = (free_port()?, folder.join("squid"));
    folder_of(SQUID_USER, &own)?;
    let text = format!(
        "http_port 127.0.0.1:{port}\ncache_mem 16 MB\ncache_dir ufs {0}/cache 256 16 64\n\
         cache_log {0}/log\ninclude {1}/squid.conf\n",
        own.display(),
        env!("CARGO_MANIFEST_DIR"),
    );
    let (settings, script) = (folder.join("squid.conf"), folder.join("load.lua"));
    write(&settings, &text)?;
    let address = format!("http://127.0.0.1:{behind}/");
    let lua = format!(
        "n = 0\nfunction request() n = n % 4000 + 1\n\
         return wrk.format(\"GET\", \"{address}\" .. n) end\n"
    );
    write(&script, &lua)?;
    let squid = |more: &[&str]| {
        let mut command = Command::new("squid");
        command.arg("-f").arg(&settings).arg("-N").args(more);
        command
    };
    said(&mut squid(&["-z"]))?;
    let server = start(&mut squid(&[]))?;
    until(|| listens(port))?;
    let load = move || {
        let mut load = Command::new("wrk");
        load.args(["-c", "16", "-t", "1", "-d", "2", "-s"]).arg(&script);
        wrk(load.arg(format!("http://127.0.0.1:{port}/")))
    };
    Ok(Serving { load: Box::new(load), processes: vec![server, origin], worker: None })
}

/// Returns the folder of the programs of Debian's newest postgres.
fn postgres_programs() -> Result<PathBuf, String> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|bin| bin.join("postgres").exists()).max().ok_or("it is not installed".into())
}

pub(crate) fn postgres(folder: &Path) -> Result<Serving, String> {
    let (programs, own) = (postgres_programs()?, folder.join("postgres"));
    folder_of(POSTGRES_USER, &own)?;
    let data = own.join("data");
    let mut init = by(POSTGRES_USER, &programs.join("initdb"));
    said(init.args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"]).arg(&data))?;
    let mut command = by(POSTGRES_USER, &programs.join("postgres"));
    command.arg("-D").arg(&data).arg("-k").arg(&own).args(["-c", "listen_addresses="]);
    let server = start(&mut command)?;
    until(|| UnixStream::connect(own.join(".s.PGSQL.5432")).is_ok())?;
    let pgbench = move |arguments: &[&str]| {
        let mut command = Command::new("pgbench");
        command.arg("-h").arg(&own).args(["-U", "postgres"]).args(arguments).arg("postgres");
        said(&mut command)
    };
    until(|| pgbench(&["-i", "-q"]).is_ok())?;
    let load = move || {
        let output = pgbench(&["-n", "-S", "-c", "4", "-T", "2"])?;
        let rate = output.lines().find_map(|line| line.strip_prefix("tps = "));
        rate.and_then(|rate| rate.split(' ').next()?.parse().ok()).ok_or(output)
    };
    Ok(Serving { load: Box::new(load), processes: vec![server], worker: None })
}

/// Starts postgres with one client that stays connected, whose backend is optimised.
pub(crate) fn postgres_backend(folder: &Path) -> Result<Serving, String> {
    let serving = postgres(folder)?;
    let own = folder.join("postgres");
    let mut client = Command::new("pgbench");
    client.arg("-h").arg(&own).args(["-U", "postgres", "-n", "-S", "-T", "600", "-P", "1"]);
    let progress = folder.join("progress");
    let to = fs::File::create(&progress).map_err(|e| e.to_string())?;
    client.arg("postgres").stdin(Stdio::null()).stdout(Stdio::null()).stderr(to);
    let client = Process(client.spawn().map_err(|e| e.to_string())?);
    let server = serving.id();
    let worker = move || backend(server);
    // It asks for the size over a connection of its own first.
    until(|| fs::read_to_string(&progress).is_ok_and(|text| !text.is_empty()) && worker().is_ok())?;
    let load = move || {
        let read = |path: &Path| fs::read_to_string(path).map_err(|e| e.to_string());
        let before = read(&progress)?.lines().count();
        // The first second may have begun before.
        until(|| read(&progress).is_ok_and(|text| text.lines().count() >= before + 3))?;
        let text = read(&progress)?;
        let rate = |line: &str| line.split(' ').nth(3)?.parse::<f64>().ok();
        let rates: Vec<f64> = text.lines().skip(before + 1).filter_map(rate).collect();
        let n = rates.len() as f64;
        if rates.is_empty() { Err(text) } else { Ok(rates.iter().sum::<f64>() / n) }
    };
    let Serving { processes, .. } = serving;
    let processes = std::iter::once(client).chain(processes).collect();
    Ok(Serving { load: Box::new(load), processes, worker: Some(Box::new(worker)) })
}

/// Number of files that refit serves.
const SERVED: usize = 400;

/// Starts refit, which serves small files to two threads that look them up and read them.
pub(crate) fn refit(folder: &Path) -> Result<Serving, String> {
    let (source, mount) = (folder.join("source"), folder.join("mount"));
    for new in [&source, &mount] {
        fs::create_dir(new).map_err(|e| e.to_string())?;
    }
    for name in 0..SERVED {
        write(&source.join(name.to_string()), &"served\n".repeat(300))?;
    }
    let mut command = Command::new(variable("REFIT"));
    let server = start(command.args(["mount", "--cache", "direct"]).arg(&source).arg(&mount))?;
    until(|| mount.join("0").exists())?;
    let holder = server.0.id();
    let worker = move || {
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children"));
        let child = children.map_err(|e| e.to_string())?;
        child.trim().parse().map_err(|_| "it has no server".to_owned())
    };
    let load = move || {
        let began = Instant::now();
        let reads: Result<usize, String> = std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| scope.spawn(|| read_all(&mount)));
            readers.into_iter().map(|one| one.join().map_err(|_| "a reader has panicked")?).sum()
        });
        reads.map(|reads| reads as f64 / began.elapsed().as_secs_f64())
    };
    Ok(Serving { load: Box::new(load), processes: vec![server], worker: Some(Box::new(worker)) })
}

/// Reads the files that refit serves for two seconds; returns the number of times.
fn read_all(mount: &Path) -> Result<usize, String> {
    let (began, mut reads) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(2) {
        for entry in fs::read_dir(mount).map_err(|e| e.to_string())? {
            let path = entry.map_err(|e| e.to_string())?.path();
            let read = fs::read(&path).map_err(|e| e.to_string())?;
            if read.len() != 7 * 300 {
                return Err(format!("{}: {} bytes", path.display(), read.len()));
            }
            reads += 1;
        }
    }
    Ok(reads)
}

/// Returns the backend of the first client of a postgres.
fn backend(server: u32) -> Result<u32, String> {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let children = children.map_err(|e| e.to_string())?;
    let serves = |child: &str| {
        let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.windows(7).any(|text| text == b"[local]")
    };
    let found = children.split_whitespace().find(|child| serves(child));
    found.and_then(|child| child.parse().ok()).ok_or("it has no client".to_owned())
}

pub(crate) fn mariadb(folder: &Path) -> Result<Serving, String> {
    let own = folder.join("mariadb");
    folder_of(MARIADB_USER, &own)?;
    let (data, socket) = (own.join("data"), own.join("socket"));
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let mut install = by(MARIADB_USER, Path::new("mariadb-install-db"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    said(install.args(["--skip-test-db", "--skip-log-bin"]).arg(option("datadir", &data)))?;
    let mut command = by(MARIADB_USER, Path::new("mariadbd"));
    command.args(["--no-defaults", "--skip-networking", "--skip-grant-tables"]);
    command.arg(option("datadir", &data)).arg(option("socket", &socket));
    let server = start(command.arg(option("pid-file", &own.join("pid"))))?;
    let client = |statement: &str| {
        let mut command = Command::new("mariadb");
        said(command.arg("--no-defaults").arg(option("socket", &socket)).args(["-e", statement]))
    };
    until(|| client("create database if not exists sbtest").is_ok())?;
    let socket = option("mysql-socket", &socket);
    let sysbench = move |what: &[&str]| {
        let mut command = Command::new("sysbench");
        command.args(["oltp_point_select", "--mysql-user=root", "--table-size=10000", &socket]);
        said(command.args(what))
    };
    sysbench(&["prepare"])?;
    let load = move || {
        let output = sysbench(&["--threads=4", "--time=2", "run"])?;
        let line = output.lines().find(|line| line.trim().starts_with("transactions:"));
        let rate = line.and_then(|line| line.split('(').nth(1)?.split(' ').next()?.parse().ok());
        rate.ok_or(output)
    };
    Ok(Serving { load: Box::new(load), processes: vec![server], worker: None })
}

pub(crate) fn memcached(_: &Path) -> Result<Serving, String> {
    let port = free_port()?;
    let mut command = Command::new("memcached");
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-t", "1", "-p", &port.to_string()]);
    let server = start(&mut command)?;
    until(|| listens(port))?;
    let load = move || {
        let mut load = Command::new("memcslap");
        load.arg(format!("--servers=127.0.0.1:{port}"));
        load.args([
            "--concurrency=2",
            "--execute-number=30000",
            "--test=get",
            "--initial-load=1000",
        ]);
        let output = said(&mut load)?;
        // `Time to get N keys by 2 threads: T seconds.`
        let line = output.lines().find(|line| line.starts_with("Time to get"));
        let words: Vec<&str> = line.into_iter().flat_map(str::split_whitespace).collect();
        let keys = words.get(3).and_then(|word| word.parse::<f64>().ok());
        let time = words.iter().rev().nth(1).and_then(|word| word.parse::<f64>().ok());
        keys.zip(time).map(|(keys, time)| keys / time).ok_or(output)
    };
    Ok(Serving { load: Box::new(load), processes: vec![server], worker: None })
}
