//! Tests of instances of several hosts: which instances know each other, which are trusted, and how
//! untrusted ones are reported.
//!
//! The hosts are folders of sockets here: instances of two of them know each other by TCP only.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use serde_json::Value;

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::until;

/// Any port of the loopback interface.
const ANY: &str = "127.0.0.1:0";
/// The log line of an instance about an untrusted one.
const REFUSED: &str = "refit: instance 0 refused a connection (127.0.0.1:";

/// Boots instances on a new host.
fn boot(arguments: &[&str]) -> Two {
    let stage = Stage::new();
    let (code, said, complained) = stage.run(&[&["boot"], arguments].concat());
    assert_eq!((code, complained.as_str()), (0, ""), "{said}");
    Two::of(stage)
}

/// Returns the report of `refit instances` about each.
fn instances(host: &Two) -> Vec<Value> {
    let (code, listed, said) = host.stage.run(&["--json", "instances"]);
    assert_eq!(code, 0, "{said}");
    listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the address at which the first instance of a host listens.
fn address(host: &Two) -> String {
    instances(host)[0]["address"].as_str().expect("it listens").to_owned()
}

/// Returns the peers of each instance of a host, with their transports.
fn known(host: &Two) -> Vec<String> {
    let peer = |peer: &Value| {
        assert!(peer["seconds"].is_u64() && peer["place"].is_string(), "{peer}");
        format!("{} {}", peer["number"], peer["reached"].as_str().expect("text"))
    };
    let peers = |one: &Value| -> Vec<String> {
        one["peers"].as_array().expect("peers").iter().map(peer).collect()
    };
    instances(host)
        .iter()
        .map(|one| format!("{}: {}", one["number"], peers(one).join(", ")))
        .collect()
}

#[test]
fn who_joins_one_instance_knows_all() {
    let first = boot(&["--instances", "2", "--listen", ANY]);
    let at = address(&first);
    let second = boot(&["--instances", "1", "--number", "10", "--join", &at, "--listen", ANY]);
    let third = boot(&["--instances", "2", "--number", "20", "--join", &address(&second)]);
    assert_eq!(
        known(&first),
        ["0: 1 memory, 10 tcp, 20 tcp, 21 tcp", "1: 0 memory, 10 tcp, 20 tcp, 21 tcp"]
    );
    assert_eq!(known(&second), ["10: 0 tcp, 1 tcp, 20 tcp, 21 tcp"]);
    assert_eq!(
        known(&third),
        ["20: 0 tcp, 1 tcp, 10 tcp, 21 memory", "21: 0 tcp, 1 tcp, 10 tcp, 20 memory"]
    );
    let (_, table, _) = first.stage.run(&["instances"]);
    assert!(
        table.contains(&at) && table.contains("1 memory ") && table.contains("10 TCP 127.0.0.1:")
    );
    let counting = first.count("one", &["--movable"]);
    for to in ["21", "10", "1", "0"] {
        first.moved(&counting, to).expect("there");
        counting.goes_on();
    }
}

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns options for an instance with a certificate for this host, which expires in this
    /// year.
    fn certified(&self, folder: &Path, host: &str, until: i32) -> Vec<String> {
        self.shown(folder, host, until, &self.pem)
    }

    /// Returns such options, but with another trusted authority.
    fn shown(&self, folder: &Path, host: &str, until: i32, believed: &str) -> Vec<String> {
        fs::create_dir_all(folder).expect("made");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.not_after = date_time_ymd(until, 1, 1);
        let own = params.signed_by(&key, &self.issuer).expect("signed").pem();
        let files = [("authority", believed), ("certificate", &own), ("key", &key.serialize_pem())];
        let option = |(name, text): (&str, &str)| {
            let file = folder.join(name);
            fs::write(&file, text).expect("written");
            [format!("--{name}"), file.to_str().expect("UTF-8").to_owned()]
        };
        files.into_iter().flat_map(option).collect()
    }
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

#[test]
fn who_shows_no_good_certificate_is_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let (authority, other) = (Authority::new(), Authority::new());
    let good = authority.certified(&place("good"), "127.0.0.1", 4000);
    let first = boot(&[&["--instances", "1", "--listen", ANY], &words(&good)[..]].concat());
    let counting = first.count("one", &["--movable"]);
    let at = address(&first);
    let lines = Cell::new(0);
    let refused = |options: &[String], says: &str| {
        let stage = Stage::new();
        let join = ["boot", "--instances", "1", "--number", "1", "--join", &at];
        let (code, said, complained) = stage.run(&[&join, &words(options)[..]].concat());
        assert_eq!((code, said.as_str()), (1, ""), "{says}");
        let begins = format!("refit: boot instance 1: {at}: ");
        assert!(
            complained.starts_with(&begins) && complained.contains(says),
            "{says}: {complained}"
        );
        assert_eq!(complained.lines().count(), 1, "{complained}");
        let named = complained.ends_with(
            "; give `--authority`, `--certificate` and `--key`, as the other host does\n",
        );
        assert_eq!(named, options.is_empty(), "{complained}");
        lines.set(lines.get() + 1);
        until("a line", || first.lines(REFUSED) >= lines.get());
        counting.goes_on();
    };
    refused(&[], "it requires TLS, but this instance has no certificates; ");
    refused(
        &other.certified(&place("other"), "127.0.0.1", 4000),
        "no secure connection: invalid peer certificate",
    );
    refused(&other.shown(&place("mixed"), "127.0.0.1", 4000, &authority.pem), "");
    refused(&authority.certified(&place("expired"), "127.0.0.1", 2020), "");
    assert_eq!(known(&first), ["0: "]);
    let join = ["--instances", "1", "--number", "1", "--join", &at];
    let second = boot(&[&join, &words(&good)[..]].concat());
    assert_eq!((known(&first), known(&second)), (vec!["0: 1 tls".into()], vec!["1: 0 tls".into()]));
    first.moved(&counting, "1").expect("there");
    counting.goes_on();
    first.moved(&counting, "0").expect("back");
    counting.goes_on();
    assert_eq!(first.lines(""), lines.get());
    first.says(REFUSED);
}

#[test]
fn one_whose_own_certificate_does_not_hold_is_not_joined() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let authority = Authority::new();
    let good = authority.certified(&place("good"), "127.0.0.1", 4000);
    for (name, host, until) in [("expired", "127.0.0.1", 2020), ("elsewhere", "10.0.0.1", 4000)] {
        let own = authority.certified(&place(name), host, until);
        let first = boot(&[&["--instances", "1", "--listen", ANY], &words(&own)[..]].concat());
        let at = address(&first);
        let join = ["boot", "--instances", "1", "--number", "1", "--join", &at];
        let says = "no secure connection: ";
        Stage::new().refuses(&[&join, &words(&good)[..]].concat(), says);
        first.says(REFUSED);
    }
    // An invalid certificate is reported before any instance is asked.
    let mut none = authority.certified(&place("none"), "127.0.0.1", 4000);
    none.swap(1, 5);
    let boot = ["boot", "--instances", "1", "--listen", ANY];
    Stage::new().refuses(&[&boot, &words(&none)[..]].concat(), "/none/");
}

#[test]
fn other_addresses_than_this_hosts_need_certificates() {
    let boot = ["boot", "--instances", "1", "--listen", "0.0.0.0:0"];
    Stage::new().refuses(
        &boot,
        "0.0.0.0 can be reached from other hosts; use certificates, or allow connections without them; \
        give `--authority`, `--certificate` and `--key`, or `--insecure`",
    );
    let host = boot_insecure();
    assert!(address(&host).starts_with("0.0.0.0:"));
}

fn boot_insecure() -> Two {
    boot(&["--instances", "1", "--listen", "0.0.0.0:0", "--insecure"])
}

/// Joins an instance as an instance of this number would; returns its urgent connection, and the
/// other one.
fn joined_by(number: u8, at: &str) -> [TcpStream; 2] {
    [0, 1].map(|way| {
        let mut stream = TcpStream::connect(at).expect("it listens");
        let release = env!("CARGO_PKG_VERSION");
        let mut hello = [0; 64];
        hello[..8].copy_from_slice(b"refitmsg");
        (hello[8], hello[10], hello[12]) = (1, number, way);
        hello[13] = u8::try_from(release.len()).expect("short");
        hello[24..24 + release.len()].copy_from_slice(release.as_bytes());
        stream.write_all(&hello).expect("it hears");
        stream.read_exact(&mut hello).expect("it says hello");
        stream.write_all(&[0]).expect("it hears");
        let mut verdict = [255];
        stream.read_exact(&mut verdict).expect("it says");
        assert_eq!(verdict, [0]);
        stream
    })
}

/// Returns the head of a message of this sort, kind and length.
fn head(sort: u8, kind: u16, length: u32) -> Vec<u8> {
    let mut bytes = vec![sort, 0];
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.resize(28, 0);
    bytes
}

#[test]
fn one_that_says_what_cannot_be_meant_is_parted_from() {
    const MESSAGE: u8 = 1;
    const QUESTION: u8 = 2;
    const ANSWER: u8 = 3;
    /// The kind of the message that ends a thread, or a program.
    const VANISH: u16 = 4;
    let (urgent, bulk) = (0, 1);
    let first = boot(&["--instances", "1", "--listen", ANY]);
    let counting = first.count("one", &["--movable"]);
    let at = address(&first);
    let undecodable = [head(MESSAGE, VANISH, 3), vec![255; 3]].concat();
    for (way, bytes, why) in [
        (urgent, vec![255; 28], "a header says it is of sort 65535"),
        (bulk, b"GET / HTTP/1.1\r\nHost: xy\r\n\r\n".to_vec(), "a header says it is of sort 17735"),
        (
            urgent,
            head(MESSAGE, 999, 0),
            "a message is of kind 999, which this instance does not handle",
        ),
        (urgent, head(MESSAGE, 999, u32::MAX), "a header announces 4294967295 bytes"),
        (urgent, undecodable, "a message of kind 4 cannot be decoded: "),
        (urgent, head(QUESTION, VANISH, 0), "a message of kind 4 is a question on one side only"),
        (bulk, head(MESSAGE, VANISH, 0), "a message of kind 4 came the Bulk way"),
        (urgent, head(ANSWER, 0, 0), "an answer has ticket 0, which no question has"),
    ] {
        let mut ways = joined_by(9, &at);
        ways[way].write_all(&bytes).expect("it hears");
        // The instance closes both connections, possibly before it has received everything.
        ways.iter_mut().for_each(|way| drop(way.read_to_end(&mut Vec::new())));
        let says = format!("refit: instance 0 has lost instance 9: {why}");
        until(why, || first.lines(&says) == 1);
        counting.goes_on();
    }
    until("its parting", || known(&first) == ["0: "]);
    let second = boot(&["--instances", "1", "--number", "9", "--join", &at]);
    assert_eq!(known(&second), ["9: 0 tcp"]);
    first.moved(&counting, "9").expect("there");
    counting.goes_on();
    assert_eq!(first.lines(" has lost instance 9: "), 8);
    assert_eq!(first.lines(" has instance 9 again, after "), 8);
    assert_eq!(first.lines(""), 16);
    first.says(" has lost instance 9: ");
}
