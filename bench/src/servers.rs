//! Servers under load while one hot function of them is counted, and while all are, libraries included.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use refit_code::probe::watch;
use refit_code::process::Program;

use crate::stats::Sample;

const ROUNDS: usize = 7;

/// Requests a second of a server: as it is, with a hot function counted, with all counted.
pub(crate) struct Served {
    pub(crate) name: &'static str,
    pub(crate) hot: &'static str,
    pub(crate) places: usize,
    pub(crate) rates: [Sample; 3],
    pub(crate) trouble: Option<String>,
}

/// A server that is killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn measure() -> Vec<Served> {
    [
        ("redis-server, SET and GET", "processCommand", redis as Start),
        ("nginx, a small file", "ngx_http_process_request", nginx),
    ]
    .map(|(name, hot, start)| {
        let (places, rates, trouble) = (0, Default::default(), None);
        let mut served = Served { name, hot, places, rates, trouble };
        served.trouble = rounds(start, &mut served).err();
        served
    })
    .into()
}

type Load = Box<dyn Fn() -> Result<f64, String>>;
type Start = fn(&Path) -> Result<(Server, Load), String>;

fn rounds(start: Start, served: &mut Served) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (server, load) = start(folder.path())?;
    let program = Program::open(server.0.id()).map_err(|e| e.to_string())?;
    let hot = format!("uprobe:*:{} {{ count }}", served.hot);
    for round in 0..=ROUNDS {
        for (number, probe) in
            [None, Some(hot.as_str()), Some("uprobe:*:* { count }")].into_iter().enumerate()
        {
            let watch = probe.map(|probe| put_in(&program, probe)).transpose()?;
            let rate = load()?;
            if let Some(watch) = watch {
                served.places = watch.watched.len();
                watch.remove(&program).map_err(|e| e.to_string())?;
            }
            // The first round fills caches, and is for the analysis.
            if round > 0 {
                served.rates[number].push(rate);
            }
        }
    }
    Ok(())
}

fn put_in(program: &Program, probe: &str) -> Result<watch::Watch, String> {
    let spec = probe.parse().map_err(|e| format!("{e}"))?;
    let prepared = watch::prepare(program, &[spec], None).map_err(|e| e.to_string())?;
    prepared.install(program).map_err(|e| e.to_string())
}

fn start(command: &mut Command) -> Result<Server, String> {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().map(Server).map_err(|e| format!("{:?}: {e}", command.get_program()))
}

/// Tries until it works.
fn until(mut works: impl FnMut() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !works() {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("the server does not answer".into());
        }
        // It is being started; nothing is measured yet.
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::null()).output().map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn redis(folder: &Path) -> Result<(Server, Load), String> {
    let socket = folder.join("redis");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    let server = start(&mut command)?;
    until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
    let load = move || {
        let mut load = Command::new("redis-benchmark");
        load.arg("-s").arg(&socket).args(["--csv", "-n", "150000", "-t", "set,get"]);
        let told = said(&mut load)?;
        // A line for each kind of request: its name, requests a second, more.
        let rate = |line: &str| line.split('"').nth(3)?.parse::<f64>().ok();
        let rates: Vec<f64> = told.lines().skip(1).filter_map(rate).collect();
        if rates.len() == 2 { Ok(rates.iter().sum::<f64>() / 2.0) } else { Err(told) }
    };
    Ok((server, Box::new(load)))
}

fn nginx(folder: &Path) -> Result<(Server, Load), String> {
    const PORT: u16 = 18_081;
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/errors; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{PORT}; root {0}; }} }}\n",
        folder.display()
    );
    let settings = folder.join("nginx.conf");
    fs::write(&settings, text).map_err(|e| e.to_string())?;
    fs::write(folder.join("index.html"), "hello\n").map_err(|e| e.to_string())?;
    let server = start(Command::new("nginx").arg("-c").arg(&settings))?;
    until(|| std::net::TcpStream::connect(("127.0.0.1", PORT)).is_ok())?;
    let load = || {
        let mut load = Command::new("wrk");
        load.args(["-c", "16", "-t", "1", "-d", "2", &format!("http://127.0.0.1:{PORT}/")]);
        let told = said(&mut load)?;
        let rate = told.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        rate.and_then(|rate| rate.trim().parse().ok()).ok_or(told)
    };
    Ok((server, Box::new(load)))
}
