//! The instances a command talks to.

use refit_instance::{Client, Kind, Refusal, find};

use crate::failure::Failure;

/// An instance that is asked.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) pid: u32,
    pub(crate) client: Client,
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
            let client = Client::new(&socket)?;
            // One that does not answer must not keep us from the others.
            match client.health() {
                Ok(_) => all.push(Live { pid, client }),
                Err(refusal) => eprintln!("refit: {refusal}"),
            }
        }
    }
    Ok(all)
}
