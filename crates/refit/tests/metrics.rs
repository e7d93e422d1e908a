//! `refit metrics` of several instances: printed, written to a file, served over TCP.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use stage::Stage;
use stage::running::until;

/// Families by their line of the type, and samples of one of them.
fn samples<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect()
}

#[test]
fn metrics_of_all_instances_are_one_text_that_a_file_and_a_scraper_get() {
    let stage = Stage::new();
    let Some(one) = stage.serve() else { return };
    for name in ["other", "elsewhere"] {
        fs::create_dir(stage.path(name)).expect("made");
    }
    let other = stage.path("other");
    let child = Command::new(env!("CARGO_BIN_EXE_refit"))
        .env("REFIT_RUNTIME_DIR", stage.path("sockets"))
        .args(["mount".as_ref(), stage.path("elsewhere").as_os_str(), other.as_os_str()])
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let two = stage::Serving { child, mountpoint: other.clone() };
    until("the other mount", || stage::mounted(&other));
    fs::write(one.mountpoint.join("x"), "x").expect("written");

    let (code, text, stderr) = stage.run(&["metrics"]);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    let requests = samples(&text, "refit_mount_requests_total");
    assert_eq!(requests.len(), 2, "{text}");
    for serving in [&one, &two] {
        let label = format!("pid=\"{}\"", serving.pid().as_raw_nonzero());
        assert_eq!(requests.iter().filter(|line| line.contains(&label)).count(), 1, "{text}");
    }
    let types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let mut once = types.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), types.len(), "each family once: {text}");

    let file = stage.path("refit.prom");
    let (code, stdout, stderr) = stage.run(&["metrics", "--output", file.to_str().expect("UTF-8")]);
    assert_eq!((code, &*stdout, &*stderr), (0, "", ""));
    let written = fs::read_to_string(&file).expect("it is there");
    assert_eq!(samples(&written, "refit_mount_requests_total").len(), 2, "{written}");
    stage.refuses(&["metrics", "--output", "/nonexistent/x"], "/nonexistent/x");

    let mut refit = stage.refit(&["metrics", "--listen", "127.0.0.1:0", "--json"]);
    let mut server = refit.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = server.stdout.as_mut().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
    let listening: Value = serde_json::from_str(&line).expect("JSON");
    let mut scraper = TcpStream::connect(listening["listening"].as_str().expect("an address"))
        .expect("it listens");
    scraper
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    scraper.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("openmetrics-text"), "{answer}");
    assert_eq!(samples(&answer, "refit_mount_requests_total").len(), 2, "{answer}");
    kill_process(Pid::from_child(&server), Signal::INT).expect("it runs");
    assert!(server.wait().expect("it ends").success());
}
