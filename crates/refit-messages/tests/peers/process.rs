//! An instance in a process of its own, which is killed or stopped.
//!
//! The process runs this test program again; environment variables select its role.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use refit_messages::{InstanceId, Layer, MessageError, Security};
use rustix::process::{Pid, Signal, kill_process};

use crate::pair::{Double, Heard, LOOPBACK, Nothing, builder, next, until};

const TWO: InstanceId = InstanceId(2);
const NONE: Security = Security::None { anywhere: false };
/// Long enough for a busy machine, which may pause a process for a second.
const SILENCE: Duration = Duration::from_secs(4);
/// The environment variable with the path at which to join.
const AT: &str = "REFIT_TEST_JOIN";

/// The other process, which is killed on drop.
struct Other(Child);

impl Other {
    fn join(at: &str) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut other = Command::new(own);
        other.args(["--exact", "process::the_other_instance", "--nocapture"]).env(AT, at);
        Self(other.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other process: answers until its standard input ends. Does nothing in a normal run.
#[test]
fn the_other_instance() {
    let Ok(at) = std::env::var(AT) else { return };
    let (two, _heard) = builder(2);
    let two = two.silence(SILENCE).start().unwrap();
    match at.starts_with('/') {
        true => two.join_here(Path::new(&at)).unwrap(),
        false => two.join(&at, &NONE).unwrap(),
    }
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

#[test]
fn who_is_killed_is_lost_and_all_questions_to_it_fail() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let (one, heard) = builder(1);
    let one = one.silence(SILENCE).start().unwrap();
    one.listen_here(&path).unwrap();
    let address = one.listen(LOOPBACK, &NONE).unwrap().to_string();
    for at in [path.to_str().unwrap(), &address] {
        let other = Other::join(at);
        until(|| !one.peers().is_empty());
        thread::scope(|scope| {
            let one = &one;
            let asks = || loop {
                if let Err(error) = one.ask(TWO, &Double(1), &[7; 4000]) {
                    return error;
                }
            };
            let waits = scope.spawn(move || one.ask(TWO, &Nothing(0), &[]).unwrap_err());
            // A question asked after the kill would fail as not connected.
            until(|| one.peers()[0].waiting == 1);
            let busy = [scope.spawn(asks), scope.spawn(asks)];
            until(|| one.peers()[0].urgent.received > 100);
            other.signal(Signal::KILL);
            let waited = waits.join().unwrap();
            assert!(matches!(waited, MessageError::Lost { peer: TWO, .. }), "{waited}");
            for thread in busy {
                // A question that was asked just then may have come too late for that.
                let error = thread.join().unwrap();
                let lost = matches!(
                    error,
                    MessageError::Lost { peer: TWO, .. } | MessageError::NotConnected(TWO)
                );
                assert!(lost, "{error}");
            }
        });
        assert_eq!(next(&heard.lost).0, TWO);
        until(|| matches!(one.ask(TWO, &Double(1), &[]), Err(MessageError::NotConnected(TWO))));
    }
    one.close();
}

/// Returns an instance, and a peer in a process of its own that has joined it by TCP and then was
/// stopped.
fn joined_and_stopped() -> (Arc<Layer>, Heard, Other) {
    let (one, heard) = builder(1);
    let one = one.silence(SILENCE).start().unwrap();
    let address = one.listen(LOOPBACK, &NONE).unwrap().to_string();
    let other = Other::join(&address);
    until(|| !one.peers().is_empty());
    other.signal(Signal::STOP);
    // Until it has stopped it may answer.
    until(|| refit_sys::process::stands(other.0.id()));
    (one, heard, other)
}

/// The kernel of a process that gets no processor still acknowledges data, so the process is not
/// taken for dead.
#[test]
fn who_is_silent_for_a_while_stays() {
    let (one, heard, other) = joined_and_stopped();
    assert!(heard.lost.recv_timeout(SILENCE * 3 / 2).is_err(), "it is not lost");
    other.signal(Signal::CONT);
    assert_eq!(one.ask(TWO, &Double(2), &[]).unwrap().0, 4);
    one.close();
}

#[test]
fn who_is_stopped_is_lost_by_tcp() {
    let (one, heard, _other) = joined_and_stopped();
    let error = one.ask(TWO, &Nothing(0), &[]).unwrap_err();
    assert!(matches!(error, MessageError::Lost { peer: TWO, .. }), "{error}");
    assert_eq!(next(&heard.lost), (TWO, "it has stopped responding".to_owned()));
    one.close();
}
