//! Usage: `refit-example-kv 127.0.0.1:7777`, then `nc 127.0.0.1 7777` and `SET a 1`, `SWAP
//! sharded`, `GET a`.

#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".into());
    let store = match refit_example_kv::store::create("one-map") {
        Ok(store) => store,
        Err(error) => {
            eprintln!("kv: {error}");
            return ExitCode::FAILURE;
        }
    };
    let served = TcpListener::bind(&address).and_then(|listener| {
        println!("serving on {}", listener.local_addr()?);
        refit_example_kv::serve(&listener, store)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv: serve on {address}: {error}; name another address");
            ExitCode::FAILURE
        }
    }
}
