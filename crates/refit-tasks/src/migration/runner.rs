//! Runs the instructions of one thread of a group, in a task of the replica: until it is wanted back, or does what only its kernel
//! half can do.
//!
//! ```text
//!   arrives ──► runs ──┬─ system call ──► to its shadow, through the slot ──► runs on
//!                      ├─ touches what is not there ──► asks the origin, maps it ──► runs on
//!                      └─ is wanted back │ makes a task, ends, leaves a handler │ faults ──► goes back, with its registers
//! ```
//!
//! The task is traced by the thread that serves it, and makes no system call of its own: the kernel stops it at each, and passes over it
//! (`PTRACE_SYSEMU`). It has one signal that says to look up, which nobody else sends.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use refit_messages::Reply;
use refit_sys::linger;
use refit_sys::park::{self, Slot};
use refit_sys::trace::{self, Event, Held, Options, Registers};

use super::calls::{Kind, kind};
use super::guest::Guest;
use super::half::UserHalf;
use super::mappings;
use super::stub;
use super::wire::{Arrive, Came, Change, Fell, Retrieve, Why};

/// A task has been asked to stop, and should have by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who waits for a call looks up that often, in case that it was called when nobody was there to hear it.
const LOOK_UP: Duration = Duration::from_secs(1);

/// A runner, as others see it.
pub(crate) struct Runner {
    task: u32,
    process: u32,
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    /// Where it may wait for a call to return.
    slot: Option<Slot>,
}

enum Order {
    Arrive(Box<Arrive>, Reply<Arrive>),
    Recall(u64),
    /// Its thread is no more; another may come.
    Rest,
    End,
}

impl Runner {
    /// Serves a task of a replica that rests.
    pub(super) fn begin(guest: &Arc<Guest>, task: u32) -> io::Result<Arc<Self>> {
        let process = guest.process;
        let (state, called) = (Mutex::default(), Condvar::new());
        let runner = Arc::new(Self { task, process, state, called });
        let (tell, told) = mpsc::channel();
        let (serves, guest) = (Arc::clone(&runner), Arc::clone(guest));
        let serve = move || match seize(task) {
            Ok(held) => {
                // Whoever has asked waits for it.
                let _ = tell.send(Ok(()));
                Running::new(&guest, &serves, held).serve();
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        thread::Builder::new().name("refit-runner".to_owned()).spawn(serve)?;
        told.recv().map_err(|_| io::Error::other("it has ended at once"))??;
        Ok(runner)
    }

    pub(super) fn arrive(&self, arrive: Arrive, reply: Reply<Arrive>) {
        self.order(Order::Arrive(Box::new(arrive), reply));
    }

    /// The thread is wanted back, if it is still in this stay.
    pub(crate) fn recall(&self, stay: u64) {
        self.order(Order::Recall(stay));
    }

    /// Its thread has ended: it may serve another one.
    pub(super) fn rest(&self) {
        self.order(Order::Rest);
    }

    /// It is not needed any more.
    pub(super) fn end(&self) {
        self.order(Order::End);
    }

    fn order(&self, order: Order) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.orders.push_back(order);
        let slot = state.slot;
        drop(state);
        // It waits for orders, or for a call, or runs: each has its own bell.
        self.called.notify_all();
        if let Some(slot) = slot {
            slot.ring();
        }
        refit_sys::process::nudge_thread(self.process, self.task);
    }

    /// The next order; waits for one.
    fn wait(&self) -> Order {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |state: &mut State| state.orders.is_empty();
        let waited = self.called.wait_while(state, none);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.orders.pop_front().unwrap_or(Order::End)
    }

    /// The next order, if there is one.
    fn look(&self) -> Option<Order> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).orders.pop_front()
    }

    fn waits_at(&self, slot: Option<Slot>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).slot = slot;
    }
}

fn seize(task: u32) -> io::Result<Held> {
    let options = Options::SYSTEM_CALL | Options::EXIT_KILL;
    let mut held = Held::seize_with(task, options)?;
    held.interrupt()?;
    held.settle(Instant::now() + PATIENCE)?;
    held.set_signal_mask(0)?;
    Ok(held)
}

/// Why a thread is here no more.
enum Gone {
    /// It has gone back.
    Back,
    /// The task is not needed any more.
    Ended,
    /// The task is no more, and nobody here has ended it.
    Killed,
}

/// One thread's stay.
struct Stay {
    thread: u32,
    stay: u64,
    slot: Slot,
}

/// What the serving thread has.
struct Running<'a> {
    guest: &'a Guest,
    runner: &'a Runner,
    held: Held,
    /// A `syscall` instruction of the replica.
    instruction: u64,
}

impl<'a> Running<'a> {
    fn new(guest: &'a Guest, runner: &'a Runner, held: Held) -> Self {
        let instruction = guest.window.start + stub::CODE + park::instruction();
        Self { guest, runner, held, instruction }
    }

    fn serve(mut self) {
        loop {
            match self.runner.wait() {
                Order::Arrive(arrive, reply) => {
                    let thread = arrive.thread;
                    let gone = self.stay(*arrive, reply);
                    self.runner.waits_at(None);
                    let why = match gone {
                        Ok(Gone::Back) => continue,
                        Ok(Gone::Ended) => break,
                        Ok(Gone::Killed) => "its replica was killed".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    let fell = Fell { group: self.guest.group, thread, why };
                    // Where the origin is no more, nothing has to be told.
                    let _ = self.guest.layer.send(self.guest.group.home(), &fell, &[]);
                    break;
                }
                // It has gone back of its own meanwhile, or for ever.
                Order::Recall(_) | Order::Rest => {}
                Order::End => break,
            }
        }
        // It ends with its tracer, and its replica with it.
        self.held.leave();
    }

    fn stay(&mut self, arrive: Arrive, reply: Reply<Arrive>) -> io::Result<Gone> {
        let Some(slot) = Slot::at(self.guest.slots, arrive.slot as usize) else {
            reply.say(&Err("there is no such slot".to_owned()), &[]);
            return Ok(Gone::Back);
        };
        let stay = Stay { thread: arrive.thread, stay: arrive.stay, slot };
        let general = arrive.half.general(self.held.registers()?);
        if let Err(error) = arrive.half.give(&self.held, &general) {
            reply.say(&Err(error.to_string()), &[]);
            return Ok(Gone::Back);
        }
        self.runner.waits_at(Some(slot));
        reply.say(&Ok(()), &[]);
        if arrive.in_call
            && let Some(gone) = self.until_answered(&stay)?
        {
            return Ok(gone);
        }
        self.run(&stay)
    }

    fn run(&mut self, stay: &Stay) -> io::Result<Gone> {
        loop {
            if let Some(gone) = self.orders(stay, false)? {
                return Ok(gone);
            }
            self.held.resume_emulated(0)?;
            let gone = match self.next()? {
                Event::SystemCall => self.call(stay)?,
                Event::Signal(signal) => self.signal(stay, signal)?,
                Event::Exited(_) | Event::Killed(_) => Some(Gone::Killed),
                _ => None,
            };
            if let Some(gone) = gone {
                return Ok(gone);
            }
        }
    }

    fn next(&self) -> io::Result<Event> {
        loop {
            match trace::next_of(self.held.thread(), true) {
                Ok(Some((_, event))) => return Ok(event),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Does what was ordered meanwhile.
    fn orders(&mut self, stay: &Stay, in_call: bool) -> io::Result<Option<Gone>> {
        while let Some(order) = self.runner.look() {
            match order {
                Order::Recall(wanted) if wanted == stay.stay => {
                    let general = self.held.registers()?;
                    return self.back(stay, Why::Recalled, in_call, &general).map(Some);
                }
                Order::Rest => return Ok(Some(Gone::Back)),
                Order::Recall(_) => {}
                Order::Arrive(_, reply) => reply.say(&Err("it is here".to_owned()), &[]),
                Order::End => return Ok(Some(Gone::Ended)),
            }
        }
        Ok(None)
    }

    /// The thread stands before a system call.
    fn call(&mut self, stay: &Stay) -> io::Result<Option<Gone>> {
        let mut registers = self.held.registers()?;
        let number = registers.orig_rax;
        match kind(number, registers.rdi) {
            kind if kind == Kind::Home || self.guest.calls_home => {
                park::step_back(&mut registers, number);
                return self.back(stay, Why::Call, false, &registers).map(Some);
            }
            Kind::Yield | Kind::Home => {
                refit_sys::thread::give_way();
                self.returns(registers, 0)?;
            }
            Kind::SetFs => {
                registers.fs_base = registers.rsi;
                self.returns(registers, 0)?;
            }
            Kind::Change => {
                let change = Change {
                    group: self.guest.group,
                    thread: stay.thread,
                    number,
                    arguments: arguments(&registers),
                    stack: registers.rsp,
                };
                let answer = self.guest.layer.ask(self.guest.group.home(), &change, &[]);
                let Ok((answer, _)) = answer else { return Ok(Some(Gone::Ended)) };
                self.returns(registers, answer.cast_unsigned())?;
            }
            Kind::Shadow => {
                stay.slot.ask(number, arguments(&registers), registers.rsp);
                return self.until_answered(stay);
            }
        }
        Ok(None)
    }

    fn returns(&self, mut registers: Registers, value: u64) -> io::Result<()> {
        registers.rax = value;
        registers.orig_rax = u64::MAX;
        self.held.set_registers(&registers)
    }

    /// The thread stands behind a call that its shadow makes.
    fn until_answered(&mut self, stay: &Stay) -> io::Result<Option<Gone>> {
        loop {
            let heard = stay.slot.bell();
            if let Some(gone) = self.orders(stay, true)? {
                return Ok(Some(gone));
            }
            if let Some(value) = stay.slot.answer() {
                self.returns(self.held.registers()?, value)?;
                return Ok(None);
            }
            if !linger::a_moment(|| stay.slot.bell() != heard) {
                stay.slot.wait(heard, LOOK_UP);
            }
        }
    }

    /// The task is about to be given a signal.
    fn signal(&mut self, stay: &Stay, signal: i32) -> io::Result<Option<Gone>> {
        let information = self.held.information()?;
        // Somebody says to look up.
        if information.code() <= 0 {
            return Ok(None);
        }
        let missing = signal == libc::SIGSEGV && information.code() == SEGV_MAPERR;
        if let Some(address) = information.address().filter(|_| missing) {
            match self.retrieve(stay, address) {
                Ok(true) => return Ok(None),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    return Ok(Some(Gone::Ended));
                }
                // What cannot be mapped here can be touched there.
                Err(_) => {}
            }
        }
        let mut registers = self.held.registers()?;
        registers.orig_rax = u64::MAX;
        if signal == libc::SIGTRAP && information.code() == SI_KERNEL {
            // A breakpoint, which is behind the thread already: it is to hit it there.
            registers.rip -= 1;
        }
        self.back(stay, Why::Exception, false, &registers).map(Some)
    }

    /// Has what is at an address mapped; whether there is anything.
    fn retrieve(&mut self, stay: &Stay, address: u64) -> io::Result<bool> {
        loop {
            let forgotten = self.guest.forgotten();
            let group = self.guest.group;
            let question = Retrieve { group, thread: stay.thread, address };
            let answer = self.guest.layer.ask(group.home(), &question, &[]);
            let (mapping, _) = answer.map_err(|_| io::ErrorKind::NotConnected)?;
            let (held, instruction) = (&mut self.held, self.instruction);
            let made = self
                .guest
                .map(forgotten, || mappings::make(held, instruction, &self.guest.window, &mapping));
            if let Some(made) = made {
                return made;
            }
        }
    }

    /// Sends the thread back.
    fn back(&self, stay: &Stay, why: Why, in_call: bool, general: &Registers) -> io::Result<Gone> {
        let half = UserHalf::of(&self.held, general)?;
        let (group, thread) = (self.guest.group, stay.thread);
        let came = Came { group, thread, stay: stay.stay, why, in_call, half };
        match self.guest.layer.send(group.home(), &came, &[]) {
            Ok(()) => Ok(Gone::Back),
            // Its origin is no more, and so is the program.
            Err(_) => Ok(Gone::Ended),
        }
    }
}

/// The kernel sends it, and no fault is described (`asm-generic/siginfo.h`).
const SI_KERNEL: i32 = 0x80;
/// The address is not mapped (`asm-generic/siginfo.h`).
const SEGV_MAPERR: i32 = 1;

fn arguments(registers: &Registers) -> [u64; 6] {
    [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9]
}
