//! Clients use the store over TCP while it is swapped back and forth; every answer is checked.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

struct Client {
    to: TcpStream,
    from: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let to = TcpStream::connect(address).expect("it listens");
        to.set_nodelay(true).expect("it is a TCP connection");
        let from = BufReader::new(to.try_clone().expect("a descriptor is to be had"));
        Client { to, from }
    }

    fn ask(&mut self, command: &str) -> String {
        self.to.write_all(format!("{command}\n").as_bytes()).expect("it listens");
        let mut answer = String::new();
        self.from.read_line(&mut answer).expect("it answers");
        answer.trim_end().to_owned()
    }
}

fn serve() -> SocketAddr {
    let store = refit_example_kv::store::create("one-map").expect("it is an implementation");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is to be had");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || refit_example_kv::serve(&listener, store));
    address
}

/// Runs commands of one client with known answers. Returns the number of keys that it leaves.
fn use_it(address: SocketAddr, own: usize, stop: &AtomicBool) -> usize {
    let mut client = Client::connect(address);
    let (mut round, mut left) = (0, 0);
    while !stop.load(Ordering::Relaxed) || round < 100 {
        let key = format!("{own}-{round}");
        assert_eq!(client.ask(&format!("SET {key} first")), "NEW");
        assert_eq!(client.ask(&format!("SET {key} then {round}")), "WAS first");
        assert_eq!(client.ask(&format!("GET {key}")), format!("IS then {round}"));
        if round % 2 == 0 {
            assert_eq!(client.ask(&format!("DEL {key}")), format!("WAS then {round}"));
            assert_eq!(client.ask(&format!("GET {key}")), "NONE");
        } else {
            left += 1;
        }
        round += 1;
    }
    left
}

#[test]
fn no_answer_is_wrong_while_the_store_is_swapped() {
    let address = serve();
    let stop = AtomicBool::new(false);
    let left: usize = std::thread::scope(|scope| {
        let stop = &stop;
        let clients: Vec<_> =
            (0..3).map(|own| scope.spawn(move || use_it(address, own, stop))).collect();
        let mut operator = Client::connect(address);
        let mut committed = 0;
        while committed < 200 {
            let to = ["sharded", "one-map"][committed % 2];
            let answer = operator.ask(&format!("SWAP {to}"));
            // A deadline may expire on a busy machine; the store is unchanged then.
            assert!(answer.starts_with("Committed") || answer.contains("deadline"), "{answer}");
            committed += usize::from(answer.starts_with("Committed"));
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("every answer is right")).sum()
    });
    let mut client = Client::connect(address);
    assert_eq!(client.ask("COUNT"), format!("COUNT {left}"));
    assert!(client.ask("SWAP nothing").contains("there are: one-map, sharded"));
    assert!(client.ask("SET onlykey").starts_with("ERROR"));
}
