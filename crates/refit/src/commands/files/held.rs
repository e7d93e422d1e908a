//! `refit mount` with a holder, and the program that takes over in a hand-over.
//!
//! The process that was started becomes a holder ([`refit_sys::holder`]), and its child the server.
//! If the server is killed or aborts, or if it hands over, the next one finds the state that it has
//! left ([`LeftState`]), and continues it. The instance keeps its number, which is that of the
//! first holder's process.

use std::cell::Cell;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::mpsc::Receiver;

use refit_instance::wire::MountRequest;
use refit_instance::{
    AdoptedMount, HeldServer, Instance, InstanceOptions, LeftState, PreparedMount, Refusal, Served,
    host,
};
use refit_sys::descriptors::Descriptors;
use refit_sys::holder::{self, Server, Succession};

use super::mount::{self, Event, MountArgs};
use crate::failure::Failure;
use crate::logging;
use crate::output::Output;

/// Becomes the holder of a server that mounts and serves. Returns only why it could not.
pub(super) fn run(args: &MountArgs, json: bool) -> Result<(), Failure> {
    let (args, requests) = (args.clone(), mount::requests(args)?);
    let error = holder::hold(logging::variables(), move |server| {
        let mut out = Output::new(json);
        let begin = |server: &Server| begin(&args, &requests, server, &mut out);
        finish(&server, serve(&server, begin))
    });
    Err(Failure::new("start a holder of the mounts", error.to_string(), "mount with --no-hold"))
}

/// Becomes the holder of a server that takes over from another one, whose first holder has the
/// descriptor `board`. Returns only why it could not.
pub(super) fn take_over(board: RawFd) -> Result<(), Failure> {
    let error = holder::take_over(board, |server| {
        finish(&server, serve(&server, |_| Err(nothing_left().into())))
    });
    let remedy = "use `refit handover`, which starts this command";
    Err(Failure::new("take over the mounts of another server", error.to_string(), remedy))
}

fn nothing_left() -> Refusal {
    let (operation, obstacle) = ("take over the mounts", "the server before has left none");
    Refusal::new(refit_instance::Kind::Failed, operation, obstacle, "mount again")
}

/// Ends the server: no other one is to continue its work.
fn finish(server: &Server, served: Result<(), Failure>) -> i32 {
    server.board.finish();
    served.map_or_else(|failure| failure.report().into(), |()| 0)
}

/// Serves what the server before has left. If there was none, `begin` starts an instance and
/// serves it.
fn serve(
    server: &Server,
    begin: impl FnOnce(&Server) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let left = match (&server.succession, &server.inherited) {
        (Some(succession), _) => return serve_after(server, succession),
        (None, Some(inherited)) => {
            LeftState::read(&server.board, inherited)?.map(|it| (it, inherited))
        }
        (None, None) => None,
    };
    let Some(((left, document), inherited)) = left else { return begin(server) };
    let events = mount::events(left.until_eof)?;
    let system = host();
    let _ = reported(left.load(&*system));
    let prepared = prepare(&left, inherited).into_iter().filter_map(reported);
    let adopted = prepared.map(|prepared| prepared.complete(inherited, server.crashed));
    let adopted: Vec<_> = adopted.filter_map(reported).collect();
    if server.read_only {
        adopted.iter().for_each(AdoptedMount::read_only);
    }
    let _ = reported(left.restore(&*system, &adopted));
    let continued = Continued::record(server, left, inherited, adopted, document)?;
    let instance = continued.serve(server)?;
    // Not before: the requests of the last server were bound to some of these descriptors.
    inherited.close_rest();
    until_the_end(&instance, &events)
}

/// Starts the instance and its mounts, and serves them.
fn begin(
    args: &MountArgs,
    requests: &[MountRequest],
    server: &Server,
    out: &mut Output,
) -> Result<(), Failure> {
    // Installed before anything is mounted, as by `mount::run`.
    let events = mount::events(args.until_eof)?;
    let instance = Instance::start(host(), options(server, args.until_eof)?)?;
    mount::mount(&instance, requests)?;
    // Before anyone is told that the mounts are there.
    instance.record();
    mount::announce(&instance, args, out)?;
    if args.must_be_held() && !instance.can_be_continued() {
        say!(
            "refit: the mounts will end if the server crashes, since the kernel cannot send \
             requests again (Linux 6.9 can)"
        );
    }
    server.board.serves();
    until_the_end(&instance, &events)
}

/// Takes over from another server, which serves until this one is ready.
fn serve_after(server: &Server, succession: &Succession) -> Result<(), Failure> {
    let (events, continued) = match take(server, succession) {
        Ok(taken) => taken,
        Err(refusal) => {
            succession.fail(&refusal.to_string());
            // Without dropping anything: the other server continues the mounts.
            std::process::exit(1);
        }
    };
    if !succession.commit() {
        std::process::exit(1);
    }
    let instance = continued.serve(server)?;
    until_the_end(&instance, &events)
}

/// Takes over the state of the server before, and begins to receive the events that end the
/// instance.
fn take(server: &Server, succession: &Succession) -> Result<(Receiver<Event>, Continued), Failure> {
    let Succession { descriptors, board, .. } = succession;
    let read = || LeftState::read(board, descriptors)?.ok_or_else(nothing_left);
    let (before, _) = read()?;
    let events = mount::events(before.until_eof)?;
    let system = host();
    before.load(&*system)?;
    let prepared = prepare(&before, descriptors).into_iter().collect::<Result<Vec<_>, _>>()?;
    if !succession.wait_for_end() {
        return Err(failed("the server before has given the hand-over up").into());
    }
    let (left, document) = read()?;
    if left.images != before.images {
        return Err(failed("the mounts have changed meanwhile").into());
    }
    let adopted = prepared.into_iter().map(|prepared| prepared.complete(descriptors, false));
    let adopted = adopted.collect::<Result<Vec<_>, _>>()?;
    left.restore(&*system, &adopted)?;
    Ok((events, Continued::record(server, left, descriptors, adopted, document)?))
}

fn failed(obstacle: &str) -> Refusal {
    let kind = refit_instance::Kind::Failed;
    Refusal::new(kind, "take over the mounts", obstacle, "hand over again")
}

/// Prepares to continue the mounts of a server.
fn prepare(left: &LeftState, from: &dyn Descriptors) -> Vec<Result<PreparedMount, Refusal>> {
    let prepare = |image: &RawFd| {
        let image = from.take(*image).map_err(|error| failed(&error.to_string()))?;
        PreparedMount::new(image, from)
    };
    left.images.iter().map(prepare).collect()
}

/// Reports what cannot be continued after a crash. The rest is.
fn reported<T>(outcome: Result<T, Refusal>) -> Option<T> {
    outcome
        .inspect_err(|reason| {
            say!("refit: not everything could be continued after the crash: {reason}");
        })
        .ok()
}

/// An instance that is continued as soon as its mounts are served.
struct Continued {
    left: LeftState,
    mounts: Vec<AdoptedMount>,
    options: InstanceOptions,
    /// The document that the server before has left. It is not needed any more when this server has
    /// recorded the same.
    _document: OwnedFd,
}

impl Continued {
    /// Records everything that the next server needs if this one ends.
    fn record(
        server: &Server,
        left: LeftState,
        from: &dyn Descriptors,
        mounts: Vec<AdoptedMount>,
        _document: OwnedFd,
    ) -> Result<Self, Refusal> {
        let mut options = options(server, left.until_eof)?;
        let listener = left.listener(from).map_err(|error| failed(&error.to_string()))?;
        if let Some(held) = &options.held {
            let images = mounts.iter().map(AdoptedMount::image).collect();
            held.record_adopted(&listener, images, &left);
        }
        options.listener = Some(listener);
        Ok(Self { left, mounts, options, _document })
    }

    /// Serves the mounts, and then the instance.
    fn serve(self, server: &Server) -> Result<Instance, Failure> {
        let Self { left, mounts, options, _document } = self;
        server.board.serves();
        let served: Vec<Box<dyn Served>> =
            mounts.into_iter().map(AdoptedMount::serve).filter_map(reported).collect();
        server.handover.resent();
        let instance = Instance::start(host(), options)?;
        instance.continue_journal(left);
        for served in served {
            instance.add(served);
        }
        instance.record();
        Ok(instance)
    }
}

fn options(server: &Server, until_eof: bool) -> Result<InstanceOptions, Refusal> {
    let mut options = InstanceOptions::of_this_user()?;
    options.number = server.first;
    options.held = Some(HeldServer::new(server.board.clone(), server.handover.clone(), until_eof));
    Ok(options)
}

/// Serves until the instance ends.
fn until_the_end(instance: &Instance, events: &Receiver<Event>) -> Result<(), Failure> {
    let holder = rustix::process::getppid();
    let told = Cell::new(false);
    mount::until_the_end(instance, events, || {
        instance.record();
        if rustix::process::getppid() != holder && !told.replace(true) {
            say!(
                "refit: the process that held the mounts has been killed; they end if their \
                 server crashes"
            );
        }
    })
}
