//! The instances a command talks to.

use refit_instance::{Client, Kind, Refusal, find};

use crate::failure::Failure;

/// An instance that is asked.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) pid: u32,
    pub(crate) client: Client,
}

impl Live {
    /// What it says; nothing if it has ended since it was found, as any does whose program or mount ends: what is asked of all is asked of those that
    /// are left.
    pub(crate) fn says<T>(
        &self,
        ask: impl FnOnce(&Client) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Failure> {
        match ask(&self.client) {
            Err(why) if why.kind == Kind::Unreachable && !self.client.is_there() => Ok(None),
            said => Ok(Some(said?)),
        }
    }
}

/// Live instances of this user, or only the one that was named; dead ones are reported and cleared away.
///
/// # Errors
/// There is none, or not the one that was named.
pub(crate) fn live(asked: &str, only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let all = answering(only)?;
    match only {
        _ if !all.is_empty() => Ok(all),
        Some(pid) => Err(Failure::Refused(Refusal::new(
            Kind::Unreachable,
            asked,
            format!("there is no instance {pid}"),
            "see `refit mounts` for those there are",
        ))),
        None => Err(Failure::Refused(Refusal::new(
            Kind::Unreachable,
            asked,
            "no instance is running",
            "start one with `refit mount SOURCE MOUNTPOINT`, or `refit run -- COMMAND`",
        ))),
    }
}

/// The same, where there need not be any.
///
/// # Errors
/// Sockets cannot be looked for.
pub(crate) fn answering(only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let found = find()?;
    for pid in &found.dead {
        eprintln!("refit: instance {pid} is dead; its socket was removed");
    }
    let mut all = Vec::new();
    for (pid, socket) in found.live {
        if only.is_none_or(|only| only == pid) {
            let live = Live { pid, client: Client::new(&socket)? };
            // One that does not answer must not keep us from the others.
            match live.says(Client::health) {
                Ok(Some(_)) => all.push(live),
                Ok(None) => {}
                Err(failure) => eprintln!("{failure}"),
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// What is found out from one that hangs up, and then ends or listens on.
    fn asked(name: &str, ends: bool) -> Result<Option<()>, Failure> {
        let socket = std::env::temp_dir().join(format!("refit-{}-{name}.sock", std::process::id()));
        let listener = UnixListener::bind(&socket).expect("a socket");
        let client = Client::new(&socket).expect("a client");
        let other = thread::spawn(move || {
            drop(listener.accept().expect("somebody calls"));
            (!ends).then_some(listener)
        });
        let mut kept = None;
        let said = Live { pid: 1, client }.says(|client| {
            let said = client.health();
            kept = other.join().expect("no panic");
            said.map(drop)
        });
        fs::remove_file(socket).expect("its socket");
        said
    }

    #[test]
    fn one_that_has_ended_since_it_was_found_is_none() {
        assert!(matches!(asked("ends", true), Ok(None)));
    }

    #[test]
    fn one_that_is_there_and_does_not_answer_is_told_of() {
        assert!(matches!(asked("stays", false), Err(Failure::Refused(_))));
    }
}
