//! `refit mount --hold`: the mounts outlive the server.
//!
//! The process that was started becomes the holder ([`refit_sys::holder`]), and its child the
//! server. If the server is killed or aborts, the next one finds on the board the socket of the
//! instance and the images of its mounts, and continues them. The instance keeps its number, which
//! is that of the holder's process.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Release};

use refit_instance::wire::MountRequest;
use refit_instance::{Instance, InstanceOptions, host};
use refit_sys::descriptors::{Descriptors, Inherited};
use refit_sys::holder::{self, Board, Server};

use super::mount::{self, MountArgs};
use crate::failure::Failure;
use crate::output::Output;

/// The word of the board with the socket, as a descriptor plus 1; 0 before the first server has
/// mounted everything.
const LISTENER: usize = 0;
/// The number of images.
const COUNT: usize = 1;
/// The first image.
const IMAGES: usize = 2;

/// Becomes the holder of a server that mounts and serves. Returns only why it could not.
pub(super) fn run(args: &MountArgs, json: bool) -> Result<(), Failure> {
    let (args, requests) = (args.clone(), mount::requests(args)?);
    let error = holder::hold(move |server| {
        let mut out = Output::new(json);
        let served = serve(&args, &requests, &server, &mut out).and_then(|()| out.flush());
        server.board.finish();
        served.map_or_else(|failure| failure.report().into(), |()| 0)
    });
    Err(Failure::new("start a holder of the mounts", error.to_string(), "mount without --hold"))
}

fn serve(
    args: &MountArgs,
    requests: &[MountRequest],
    server: &Server,
    out: &mut Output,
) -> Result<(), Failure> {
    let events = mount::events(args.until_eof)?;
    let mut options = InstanceOptions::of_this_user()?;
    options.number = server.holder;
    let instance = match &server.inherited {
        Some(inherited) if listener(&server.board).is_some() => {
            let continued = listener(&server.board).and_then(|number| inherited.take(number).ok());
            options.listener = continued.map(Into::into);
            let instance = Instance::start(host(), options)?;
            adopt(&instance, &server.board, inherited);
            instance
        }
        _ => {
            let instance = Instance::start(host(), options)?;
            mount::mount(&instance, requests)?;
            // Before anyone is told that the mounts are there.
            record(&server.board, &instance);
            mount::announce(&instance, args, out)?;
            if instance.descriptors().1.len() < instance.mounts().len() {
                say!(
                    "refit: the mounts will end if the server crashes, since the kernel cannot \
                     send requests again (Linux 6.9 can)"
                );
            }
            instance
        }
    };
    if let Some(inherited) = &server.inherited {
        // Not before: the requests of the last server were bound to some of these descriptors.
        inherited.close_rest();
    }
    record(&server.board, &instance);
    server.board.serves();
    mount::until_the_end(&instance, &events, || record(&server.board, &instance))
}

/// Continues the mounts of the server before.
fn adopt(instance: &Instance, board: &Board, inherited: &Inherited) {
    let images = board.words()[IMAGES..].iter();
    for image in images.take(board.words()[COUNT].load(Acquire) as usize) {
        let publish = |number: RawFd| {
            image.store(number as u64, Release);
            // Requests are answered from here on.
            board.serves();
        };
        let continued = inherited
            .take(image.load(Acquire) as RawFd)
            .map_err(|error| error.to_string())
            .and_then(|memfd| {
                instance.adopt(memfd, inherited, &publish).map_err(|refusal| refusal.to_string())
            });
        if let Err(reason) = continued {
            say!("refit: a mount could not be continued after the crash: {reason}");
        }
    }
}

fn listener(board: &Board) -> Option<RawFd> {
    let number = board.words()[LISTENER].load(Acquire);
    number.checked_sub(1).map(|number| number as RawFd)
}

/// Records what the next server needs to continue this instance.
fn record(board: &Board, instance: &Instance) {
    let (listener, images) = instance.descriptors();
    let words = board.words();
    let images = &images[..images.len().min(words.len() - IMAGES)];
    for (word, image) in words[IMAGES..].iter().zip(images) {
        word.store(*image as u64, Release);
    }
    words[COUNT].store(images.len() as u64, Release);
    words[LISTENER].store(listener as u64 + 1, Release);
}
