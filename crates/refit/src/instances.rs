//! The instances to which a command talks.

use refit_instance::{Client, Glob, Kind, Refusal, find};

use crate::failure::Failure;

/// An instance that a command asks.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) pid: u32,
    pub(crate) client: Client,
}

impl Live {
    /// Returns the answer of the instance; `None` if it has ended since it was found, as an
    /// instance does when its program or mount ends. A request to all instances is thus a request
    /// to the remaining ones.
    pub(crate) fn says<T>(
        &self,
        ask: impl FnOnce(&Client) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Failure> {
        match ask(&self.client) {
            Err(why) if self.has_ended(&why) => Ok(None),
            said => Ok(Some(said?)),
        }
    }

    /// Returns whether it did not answer because it has ended since it was found.
    pub(crate) fn has_ended(&self, why: &Refusal) -> bool {
        why.kind == Kind::Unreachable && !self.client.is_there()
    }
}

/// Returns the process that serves the instance with this number; the number itself if there is no
/// such instance, or it does not answer.
pub(crate) fn serving_process(number: u32) -> u32 {
    let instance = answering(Some(number)).ok().and_then(|mut found| found.pop());
    let health = instance.and_then(|live| live.client.health().ok());
    health.map(|health| health.server).filter(|server| *server != 0).unwrap_or(number)
}

/// Returns the live instances of this user, or only the named one. Dead ones are reported and their
/// sockets removed.
///
/// # Errors
///
/// There is none, or not the named one.
pub(crate) fn live(operation: &str, only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let all = answering(only)?;
    match only {
        _ if !all.is_empty() => Ok(all),
        Some(pid) => Err(Failure::Refused(Refusal::new(
            Kind::Unreachable,
            operation,
            format!("there is no instance {pid}"),
            "list instances with `refit mounts`, `refit ps` or `refit instances`",
        ))),
        None => Err(Failure::Refused(Refusal::new(
            Kind::Unreachable,
            operation,
            "no instance is running",
            "start one with `refit mount SOURCE MOUNTPOINT`, or `refit run -- COMMAND`",
        ))),
    }
}

/// Returns the instances that answer, of which there may be none.
///
/// # Errors
///
/// The socket directories cannot be searched.
pub(crate) fn answering(only: Option<u32>) -> Result<Vec<Live>, Failure> {
    let found = find()?;
    for refusal in &found.distrusted {
        say!("refit: skipped: {refusal}");
    }
    for pid in &found.dead {
        say!("refit: instance {pid} is dead; its socket was removed");
    }
    let mut asked = Vec::new();
    for (pid, socket) in found.live {
        if only.is_none_or(|only| only == pid) {
            asked.push(Live { pid, client: Client::new(&socket)? });
        }
    }
    // One that is stopped takes ten seconds to say nothing: all are asked at once.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let ask =
            |live: Live| scope.spawn(move || live.says(Client::health).map(|it| it.map(|_| live)));
        let asking: Vec<_> = asked.into_iter().map(ask).collect();
        let answer = |asking: std::thread::ScopedJoinHandle<'_, _>| {
            asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asking.into_iter().map(answer).collect()
    });
    // An instance that does not answer must not prevent access to the others.
    let told = answers.into_iter().filter_map(|answer| {
        answer.unwrap_or_else(|failure| {
            say!("{failure}");
            None
        })
    });
    Ok(told.collect())
}

/// Refuses a name, as opposed to a pattern, that objects of several mounts have, on any instances.
///
/// # Errors
///
/// The mounts, and the way to select one of them.
pub(crate) fn unambiguous(
    operation: &str,
    live: &[Live],
    glob: &str,
    mount: Option<&str>,
) -> Result<(), Failure> {
    if live.len() < 2 || !Glob::new(glob).is_literal() {
        return Ok(()); // An instance refuses by itself what is ambiguous within it.
    }
    let mut mounts = Vec::new();
    for one in live {
        let objects = one.says(|client| client.objects_of(glob, mount))?.unwrap_or_default();
        let of = |mount: String| format!("{mount} (instance {})", one.pid);
        mounts.extend(objects.into_iter().filter_map(|object| object.mount).map(of));
    }
    if mounts.len() < 2 {
        return Ok(());
    }
    let obstacle =
        format!("{} mounts have an object of this name: {}", mounts.len(), mounts.join(", "));
    let remedy =
        "select one with --mount MOUNTPOINT or --instance PID, or give a pattern to match all";
    Err(Failure::new(operation, obstacle, remedy))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Returns the result of asking an instance that hangs up, and then ends or continues to
    /// listen.
    fn outcome(name: &str, ends: bool) -> Result<Option<()>, Failure> {
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
        assert!(matches!(outcome("ends", true), Ok(None)));
    }

    #[test]
    fn one_that_is_there_and_does_not_answer_is_told_of() {
        assert!(matches!(outcome("stays", false), Err(Failure::Refused(_))));
    }
}
