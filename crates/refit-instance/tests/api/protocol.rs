//! The protocol of the control API: malformed requests, other users, and its description.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use refit_instance::Refusal;
use refit_instance::wire::ChangesQuery;

use crate::{get, post, raw, stage};

#[test]
fn says_what_is_wrong_with_a_request() {
    let stage = stage();
    let socket = stage.instance.socket();
    let long = format!("{{\"glob\":\"{}\"", "x".repeat(10 << 20));
    for (request, status, word) in [
        (post("/swap", "{not json"), 400, "JSON"),
        (post("/swap", "{\"glob\":\"*\"}"), 400, "implementation"),
        (post("/swap", "{\"glob\":\"*\",\"implementation\":\"a\",\"n\":1}"), 400, "unknown field"),
        (post("/swap", &long), 413, "limit"),
        (
            b"POST /swap HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
                .to_vec(),
            415,
            "application/json",
        ),
        (post("/mounts", "[]"), 400, "mount"),
        (get("/changes?from=-1"), 400, "journal"),
        (get("/changes?form=1"), 400, "unknown field"),
        (get("/nothing"), 404, "GET /nothing"),
        (get("/swap"), 405, "it supports POST"),
        (post("/objects/3", "{}"), 405, "it supports GET"),
        (get("/objects/x"), 404, "no such object"),
        (
            b"DELETE /mounts/x HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n".to_vec(),
            400,
            "x is",
        ),
    ] {
        let (got, body) = raw(&socket, &request);
        let head = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        assert_eq!(got, status, "{head}: {body}");
        assert!(body.contains(word), "{head}: {body}");
        serde_json::from_str::<Refusal>(&body).expect("a refusal can be read by programs");
    }
    assert_eq!(raw(&socket, b"\x00\x01 nonsense\r\n\r\n").0, 400);
    stage.client.health().expect("it is none the worse for it");
}

/// Returns the status of the next answer on a connection, whose body it reads.
fn answer(connection: &mut BufReader<UnixStream>) -> Option<u16> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    connection.read_exact(&mut body).ok()?;
    head.split(' ').nth(1)?.parse().ok()
}

/// A client that keeps its connection, as most do, sends the body of a request that is refused
/// after the head, and then the next request.
#[test]
fn a_refused_request_leaves_its_connection_usable() {
    let stage = stage();
    let mut stream = UnixStream::connect(stage.instance.socket()).expect("it listens");
    let mut answers = BufReader::new(stream.try_clone().expect("a descriptor"));
    for path in ["/cache", "/health", "/nothing"] {
        let head = format!("OPTIONS {path} HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        // The instance has seen the head before it answers this.
        stage.client.health().expect("it answers");
        stream.write_all(b"{}").expect("it still reads");
        let status = answer(&mut answers).expect("it answers");
        assert_eq!(status, if path == "/nothing" { 404 } else { 405 }, "{path}");
    }
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: r\r\n\r\n").expect("it reads");
    assert_eq!(answer(&mut answers), Some(200));
}

/// A follower has a thread of its own, so that other requests are answered.
#[test]
fn followers_keep_nobody_from_an_answer() {
    let stage = stage();
    let query = ChangesQuery { follow: true, ..ChangesQuery::default() };
    let followers: Vec<_> =
        (0..200).map(|_| stage.client.changes(&query).expect("it may follow")).collect();
    stage.client.health().expect("it answers");
    stage.client.objects("*").expect("it answers what takes a thread, too");
    drop(followers);
}

#[test]
fn refuses_other_users() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let stage = stage();
    if !refit_sys::credentials::anybody_reaches(&std::env::temp_dir()) {
        println!("skipped: other users may not pass through the directories above");
        return;
    }
    let socket = stage.instance.socket();
    // Removes the protection that keeps others out before their credentials are checked.
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
    };
    open(stage.top.path(), 0o755);
    open(socket.parent().expect("it has one"), 0o755);
    open(&socket, 0o666);
    let (status, body) = thread::spawn(move || {
        // Only of this thread, since credentials belong to threads in Linux.
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_uid(nobody).expect("root may");
        raw(&socket, &get("/objects"))
    })
    .join()
    .expect("no panic");
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("you are uid 65534"), "{body}");
    stage.client.health().expect("root may still ask");
}

#[test]
fn describes_itself() {
    let stage = stage();
    let (status, body) = raw(&stage.instance.socket(), &get("/openapi.json"));
    assert_eq!(status, 200);
    let document: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    for (path, method) in [
        ("/health", "get"),
        ("/objects", "get"),
        ("/objects/{id}", "get"),
        ("/swap", "post"),
        ("/changes", "get"),
        ("/activity", "get"),
        ("/mounts", "get"),
        ("/mounts", "post"),
        ("/mounts/{id}", "delete"),
        ("/cache", "post"),
        ("/memory", "get"),
        ("/memory", "post"),
        ("/processes/{pid}", "get"),
        ("/moves/{pid}", "get"),
    ] {
        assert!(document["paths"][path][method].is_object(), "{method} {path}");
    }
    for (path, operations) in document["paths"].as_object().expect("there are some") {
        for (method, operation) in operations.as_object().expect("there are some") {
            let responses = operation["responses"].as_object().expect("there are some");
            for (status, response) in responses {
                let said = response["description"].as_str().unwrap_or_default();
                assert!(!said.is_empty(), "{method} {path} does not say what {status} means");
            }
            for status in ["403", "500"] {
                assert!(responses.contains_key(status), "{method} {path} can be {status}");
            }
        }
    }
    for name in ["ObjectInfo", "Report", "Refusal", "Mount"] {
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}
