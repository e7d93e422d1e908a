//! A key-value server whose store is swapped while clients use it: `refit-objects` in a server of one's own.
//!
//! [`store`] is what the library asks for: an interface, two implementations, the factory of its objects. [`serve`] is
//! an ordinary server that calls the store through its reference and knows nothing of swaps.
//!
//! A line is a command: `SET key value`, `GET key`, `DEL key`, `COUNT`, `SWAP implementation`. A line is the answer.

// What `#[interface]` generates is exempt; nothing else is.
#![deny(unsafe_code)]

pub mod store;

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use refit_objects::{SwapOptions, swap_named};

use crate::store::StoreRef;

/// Serves clients, a thread each, until the listener fails.
///
/// # Errors
/// What the listener says.
pub fn serve(listener: &TcpListener, store: StoreRef) -> io::Result<()> {
    for client in listener.incoming() {
        let client = client?;
        std::thread::spawn(move || {
            // A client that breaks off ends its thread and nothing else.
            let _ = answer(&client, store);
        });
    }
    Ok(())
}

fn answer(client: &TcpStream, store: StoreRef) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut to = client;
    for line in BufReader::new(client).lines() {
        let line = line?;
        let answer = carry_out(&line, store);
        to.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

/// One command.
fn carry_out(line: &str, store: StoreRef) -> String {
    let mut words = line.splitn(3, ' ');
    match (words.next().unwrap_or_default(), words.next(), words.next()) {
        ("SET", Some(key), Some(value)) => {
            let before = store.set(key.to_owned(), value.to_owned());
            before.map_or("NEW".to_owned(), |before| format!("WAS {before}"))
        }
        ("GET", Some(key), None) => store.get(key).map_or("NONE".into(), |v| format!("IS {v}")),
        ("DEL", Some(key), None) => store.remove(key).map_or("NONE".into(), |v| format!("WAS {v}")),
        ("COUNT", None, None) => format!("COUNT {}", store.count()),
        ("SWAP", Some(to), None) => {
            let report = swap_named(store.id(), to, 0, &SwapOptions::default());
            let took = report.total_ns() / 1000;
            format!("{:?}, {took} µs, {} calls waited", report.end, report.blocked)
        }
        _ => "ERROR write SET key value, GET key, DEL key, COUNT or SWAP implementation".into(),
    }
}
