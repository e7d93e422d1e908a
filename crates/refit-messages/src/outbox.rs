//! The queue of outgoing frames to one peer, on one way.
//!
//! # Structure
//!
//! Frames wait in a queue. The sink, which takes their bytes, is either in [`State::sink`], when no
//! thread writes, or with the single thread that writes. A thread that adds a frame and finds the
//! sink takes it, and writes the queued frames, usually only its own. So a single sender writes by
//! itself, and several do not wait for each other's system calls. A thread that has written
//! [`MAX_BATCH`] frames leaves the rest to a relay, a thread that is started for this and ends when
//! the queue is empty.
//!
//! A receiving thread must not wait for room, since it makes the room that its peer may wait for:
//! when the sink takes no more, it leaves the queue to a relay.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::sink::Sink;
use crate::socket::Socket;

/// The number of queued bytes at which senders wait.
const ROOM: usize = 1 << 20;
/// The maximum number of bytes of answers that a peer may leave unread.
const MAX_QUEUED_BYTES: usize = 512 << 20;
/// The maximum number of frames that a sender writes, its own and others'.
const MAX_BATCH: usize = 32;

/// The queue of frames.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// The socket that the sink belongs to.
    socket: Arc<Socket>,
    /// Notified when there is room, or the outbox is closed.
    room: Condvar,
}

struct State {
    /// Present unless a thread writes.
    sink: Option<Box<dyn Sink>>,
    queue: VecDeque<Frame>,
    /// The bytes of all frames that are not yet written, including one that is just being written.
    bytes: usize,
    closed: bool,
}

struct Frame {
    bytes: Vec<u8>,
    written: usize,
}

/// The error that nothing can be sent any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Outbox {
    pub(crate) fn new(sink: Box<dyn Sink>, socket: Arc<Socket>) -> Arc<Self> {
        let state = State { sink: Some(sink), queue: VecDeque::new(), bytes: 0, closed: false };
        Arc::new(Self { state: Mutex::new(state), socket, room: Condvar::new() })
    }

    /// Appends a frame. With `wait`, it first waits for room.
    pub(crate) fn put(self: &Arc<Self>, bytes: Vec<u8>, wait: bool) -> Result<(), Closed> {
        let mut state = self.state.lock();
        if wait {
            self.room.wait_while(&mut state, |state| !state.closed && state.bytes >= ROOM);
        }
        if state.closed {
            return Err(Closed);
        }
        state.bytes += bytes.len();
        if !wait && state.bytes > MAX_QUEUED_BYTES {
            drop(state);
            self.fail();
            return Err(Closed);
        }
        state.queue.push_back(Frame { bytes, written: 0 });
        match state.sink.take() {
            Some(sink) => {
                drop(state);
                self.write(sink, wait)
            }
            None => Ok(()),
        }
    }

    /// Returns whether all frames have been written.
    pub(crate) fn idle(&self) -> bool {
        self.state.lock().bytes == 0
    }

    /// Drops all unsent frames, and ends all waiting.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        state.sink = None;
        self.room.notify_all();
    }

    /// Writes the queued frames.
    fn write(self: &Arc<Self>, mut sink: Box<dyn Sink>, wait: bool) -> Result<(), Closed> {
        for _ in 0..MAX_BATCH {
            let Some((taken, frame)) = self.next(sink) else { return Ok(()) };
            sink = taken;
            match self.write_one(&mut *sink, frame, wait) {
                Ok(None) => {}
                Ok(Some(rest)) => return self.relay(sink, rest),
                Err(_) => {
                    self.fail();
                    return Err(Closed);
                }
            }
        }
        self.next(sink).map_or(Ok(()), |(sink, frame)| self.relay(sink, frame))
    }

    /// Returns the next frame for the sink; puts the sink back if there is none.
    fn next(&self, sink: Box<dyn Sink>) -> Option<(Box<dyn Sink>, Frame)> {
        let mut state = self.state.lock();
        let next = state.queue.pop_front();
        if next.is_none() && !state.closed {
            state.sink = Some(sink);
            return None;
        }
        next.map(|frame| (sink, frame))
    }

    /// Writes a frame. Returns its remaining part if the sink would block.
    fn write_one(
        &self,
        sink: &mut dyn Sink,
        mut frame: Frame,
        wait: bool,
    ) -> io::Result<Option<Frame>> {
        while frame.written < frame.bytes.len() {
            match sink.write(&frame.bytes[frame.written..], wait) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => frame.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !wait && error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(frame));
                }
                Err(error) => return Err(error),
            }
        }
        let mut state = self.state.lock();
        let before = state.bytes;
        state.bytes = before.saturating_sub(frame.bytes.len());
        if before >= ROOM && state.bytes < ROOM {
            self.room.notify_all();
        }
        Ok(None)
    }

    /// Starts a thread that writes a frame and the rest of the queue.
    fn relay(self: &Arc<Self>, sink: Box<dyn Sink>, frame: Frame) -> Result<(), Closed> {
        let this = Arc::clone(self);
        let made = std::thread::Builder::new().name("refit-relay".to_owned()).spawn(move || {
            let mut next = Some((sink, frame));
            while let Some((mut sink, frame)) = next {
                if this.write_one(&mut *sink, frame, true).is_err() {
                    return this.fail();
                }
                next = this.next(sink);
            }
        });
        made.map(drop).map_err(|_| {
            self.fail();
            Closed
        })
    }

    /// Ends the connection after a failure; the receiving thread notices that.
    fn fail(&self) {
        self.socket.end();
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A sink that takes a frame when the test says so.
    struct Gate {
        opened: Receiver<()>,
        frames: Sender<usize>,
    }

    impl Sink for Gate {
        fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
            if !wait {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.opened.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            let _ = self.frames.send(bytes.len());
            Ok(bytes.len())
        }
    }

    /// An outbox, how to open its gate for a frame, and the frames that went through it.
    fn gated() -> (Arc<Outbox>, Sender<()>, Receiver<usize>) {
        let ((open, opened), (frames, written)) = (mpsc::channel(), mpsc::channel());
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let outbox = Outbox::new(Box::new(Gate { opened, frames }), Socket::new(ours));
        (outbox, open, written)
    }

    fn put(outbox: &Arc<Outbox>, length: usize) -> thread::JoinHandle<Result<(), Closed>> {
        let outbox = Arc::clone(outbox);
        thread::spawn(move || outbox.put(vec![0; length], true))
    }

    /// Waits until this number of bytes is queued or being written.
    fn until_queued(outbox: &Outbox, bytes: usize) {
        while outbox.state.lock().bytes != bytes {
            thread::yield_now();
        }
    }

    #[test]
    fn a_sender_waits_for_room_until_there_is_some_or_the_outbox_is_closed() {
        let (outbox, open, written) = gated();
        let first = put(&outbox, ROOM);
        until_queued(&outbox, ROOM);
        let second = put(&outbox, 1);
        // Long enough for it to have added its frame, if it did not wait.
        thread::sleep(Duration::from_millis(50));
        assert_eq!(outbox.state.lock().bytes, ROOM);
        (0..2).for_each(|_| open.send(()).expect("the sink waits"));
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Ok(()), Ok(())));
        assert_eq!(written.iter().take(2).collect::<Vec<_>>(), [ROOM, 1]);

        let third = put(&outbox, ROOM);
        until_queued(&outbox, ROOM);
        let fourth = put(&outbox, 1);
        // As above: so that it waits for room when the outbox is closed.
        thread::sleep(Duration::from_millis(50));
        outbox.close();
        assert_eq!(fourth.join().unwrap(), Err(Closed));
        open.send(()).expect("the sink waits");
        assert_eq!(third.join().unwrap(), Ok(()));
        assert_eq!(outbox.put(vec![0], true), Err(Closed));
        assert!(outbox.state.lock().sink.is_none(), "nothing can be written any more");
    }

    #[test]
    fn a_sender_leaves_what_others_have_queued_to_a_thread() {
        let (outbox, open, written) = gated();
        let first = put(&outbox, 1);
        until_queued(&outbox, 1);
        let count = MAX_BATCH + 5;
        (0..count).for_each(|_| outbox.put(vec![0], true).expect("it is queued"));
        (0..MAX_BATCH).for_each(|_| open.send(()).expect("the sink waits"));
        // It does not wait until the others are written.
        assert_eq!(first.join().unwrap(), Ok(()));
        (MAX_BATCH..=count).for_each(|_| open.send(()).expect("the sink waits"));
        assert_eq!(written.iter().take(count + 1).count(), count + 1);
    }

    #[test]
    fn what_is_queued_is_not_sent_after_the_end() {
        let (outbox, open, written) = gated();
        let first = put(&outbox, 1);
        until_queued(&outbox, 1);
        outbox.put(vec![0; 2], true).expect("it is queued");
        outbox.close();
        // Twice, so that the sink would take the second frame too. Without one to write, the sink
        // may be gone by then.
        open.send(()).expect("the sink waits");
        let _ = open.send(());
        assert_eq!(first.join().unwrap(), Ok(()));
        // Ends with the sink.
        assert_eq!(written.iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_sink_that_takes_nothing_has_failed() {
        struct Full;
        impl Sink for Full {
            fn write(&mut self, _: &[u8], _: bool) -> io::Result<usize> {
                Ok(0)
            }
        }
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let outbox = Outbox::new(Box::new(Full), Socket::new(ours));
        assert_eq!(outbox.put(vec![0], true), Err(Closed));
        assert!(outbox.state.lock().closed);
        theirs.set_nonblocking(true).expect("set");
        assert_eq!(theirs.read(&mut [0]).expect("the connection has ended"), 0);
    }

    #[test]
    fn a_receiver_never_waits_and_is_cut_off_when_too_much_is_unread() {
        let (outbox, open, written) = gated();
        // The relay waits in the sink.
        outbox.put(vec![0; 8], false).expect("it is queued");
        outbox.put(vec![0; MAX_QUEUED_BYTES - 8], false).expect("the last that is");
        assert_eq!(outbox.put(vec![0], false), Err(Closed));
        drop((open, written));
    }
}
