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

mod on_files;
mod shadow_affinity;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use refit_messages::Reply;
use refit_sys::adaptive_spin;
use refit_sys::restart::arguments;
use refit_sys::schedule::{Urgency, set_urgency};
use refit_sys::shadow_stub::{self, Slot};
use refit_sys::trace::{self, Event, Options, Registers, Tracee};
use refit_tracer::request::Request;
use tracing::debug;

use crate::error::MoveError;
use crate::fault_injection::{self, Step};
use crate::mm_lock;
use crate::origin::detach_attach;
use crate::protocol::messages::{
    Arrive, Change, ReturnReason, SyscallRequest, ThreadLost, ThreadReturned,
};
use crate::protocol::thread_state::ThreadState;
use crate::remote::files::Files;
use crate::remote::mailbox::{Mailbox, Order};
use crate::remote::replica::Replica;
use crate::remote::{mmap, stub};
use crate::stats::Tally;
use crate::syscalls::{Kind, kind};
use shadow_affinity::Beside;

/// A task has been asked to stop, and should have by then.
const TASK_STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Who waits for a call looks up that often, in case that it was called when nobody was there to hear it.
const CALL_POLL: Duration = Duration::from_secs(1);

/// An executor, as others see it.
pub(crate) struct Executor {
    task: u32,
    process: u32,
    orders: Mailbox,
    /// Of all threads that it has served.
    tally: Mutex<Tally>,
}

impl Executor {
    /// Serves a task of a replica that rests.
    pub(crate) fn begin(replica: &Arc<Replica>, task: u32) -> io::Result<Arc<Self>> {
        let process = replica.process;
        let (orders, tally) = (Mailbox::default(), Mutex::default());
        let executor = Arc::new(Self { task, process, orders, tally });
        let (tell, told) = mpsc::channel();
        let (serves, replica) = (Arc::clone(&executor), Arc::clone(replica));
        let serve = move || match seize(task) {
            Ok(held) => {
                // Whoever has asked waits for it.
                let _ = tell.send(Ok(()));
                Running::new(&replica, &serves, held).serve();
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        thread::Builder::new().name("refit-executor".to_owned()).spawn(serve)?;
        told.recv().map_err(|_| io::Error::other("it has ended at once"))??;
        Ok(executor)
    }

    pub(crate) fn arrive(&self, arrive: Arrive, reply: Reply<Arrive>) {
        self.order(Order::Arrive(Box::new(arrive), reply));
    }

    /// A thread is about to arrive.
    pub(crate) fn expect(&self) {
        self.orders.hand(Order::Expect);
    }

    /// The thread is wanted back, if it is still in this stay.
    pub(crate) fn recall(&self, residency: u64) {
        self.order(Order::Recall(residency));
    }

    /// The call that the thread stands in has returned, if it is still in this stay.
    pub(crate) fn made(&self, residency: u64, value: u64) {
        self.orders.hand(Order::SyscallResult(residency, value));
    }

    /// Its thread has ended: it may serve another one.
    pub(crate) fn rest(&self) {
        self.order(Order::Rest);
    }

    /// It is not needed any more.
    pub(crate) fn end(&self) {
        self.order(Order::End);
    }

    fn order(&self, order: Order) {
        if self.orders.hand(order) {
            refit_sys::process::interrupt_thread(self.process, self.task);
        }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seize(task: u32) -> io::Result<Tracee> {
    let options = Options::SYSTEM_CALL | Options::EXIT_KILL;
    let mut held = Tracee::seize_with(task, options)?;
    held.interrupt()?;
    held.settle(Instant::now() + TASK_STOP_TIMEOUT)?;
    held.set_signal_mask(0)?;
    Ok(held)
}

/// ReturnReason a thread is here no more.
enum Gone {
    /// It has gone back.
    Back,
    /// The task is not needed any more.
    Ended,
    /// The task is no more, and nobody here has ended it.
    Killed,
}

/// The call that a thread stands in, if it does: where its result is put.
type Call<'a> = Option<&'a mut Option<u64>>;

/// One thread's stay.
struct Residency {
    thread: u32,
    residency: u64,
    /// `None`: its shadow is told by messages.
    slot: Option<Slot>,
    beside: Beside,
}

/// What the serving thread has.
struct Running<'a> {
    replica: &'a Replica,
    executor: &'a Executor,
    held: Tracee,
    /// A `syscall` instruction of the replica.
    instruction: u64,
    /// What was mapped when the thread went on last.
    seen: u64,
    /// How urgent it was made last: policy, priority, niceness.
    urgency: Option<(i32, i32, i32)>,
    /// How often the thread has given way to others since it last did anything else.
    yields: u32,
    files: Files,
    /// What is read from or written to files, on its way.
    buffer: Vec<u8>,
}

impl<'a> Running<'a> {
    fn new(replica: &'a Replica, executor: &'a Executor, held: Tracee) -> Self {
        let instruction = replica.window.start + stub::CODE + shadow_stub::instruction();
        let (seen, urgency, yields) = (0, None, 0);
        let (files, buffer) = (Files::default(), Vec::new());
        Self { replica, executor, held, instruction, seen, urgency, yields, files, buffer }
    }

    fn serve(mut self) {
        loop {
            match self.executor.orders.wait() {
                Order::Arrive(arrive, reply) => {
                    let thread = arrive.thread;
                    let gone = self.residency(*arrive, reply);
                    self.executor.orders.waits_at(None);
                    let why = match gone {
                        Ok(Gone::Back) => continue,
                        Ok(Gone::Ended) => break,
                        Ok(Gone::Killed) => "its replica was killed".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    let fell = ThreadLost { group: self.replica.group, thread, why };
                    // Where the origin is no more, nothing has to be told.
                    let _ = self.replica.layer.send(self.replica.group.home(), &fell, &[]);
                    break;
                }
                Order::Expect => self.executor.orders.await_one(adaptive_spin::SOON),
                // It has gone back of its own meanwhile, or for ever.
                Order::Recall(_) | Order::SyscallResult(..) | Order::Rest => {}
                Order::End => break,
            }
        }
        // It ends with its tracer, and its replica with it.
        self.held.leave();
    }

    fn residency(&mut self, arrive: Arrive, reply: Reply<Arrive>) -> io::Result<Gone> {
        let slot = match self.replica.slots.map(|slots| Slot::at(slots, arrive.slot as usize)) {
            None => None,
            Some(Some(slot)) => Some(slot),
            Some(None) => {
                reply.say(&Err(MoveError::Refused("there is no such slot".to_owned())), &[]);
                return Ok(Gone::Back);
            }
        };
        let (group, thread) = (self.replica.group, arrive.thread);
        debug!(%group, thread, residency = arrive.residency, in_call = arrive.in_call, "a thread arrives");
        let residency = Residency {
            thread: arrive.thread,
            residency: arrive.residency,
            slot,
            beside: Beside::default(),
        };
        let general = arrive.half.general(self.held.registers()?);
        fault_injection::stall(Step::Stall);
        let given = fault_injection::reach(Step::Registers)
            .and_then(|()| arrive.half.give(&self.held, &general));
        if let Err(error) = given {
            reply.say(&Err(error.into()), &[]);
            return Ok(Gone::Back);
        }
        if arrive.urgency.is_some() && arrive.urgency != self.urgency {
            self.urgency = arrive.urgency;
            let (policy, priority, nice) = arrive.urgency.unwrap_or_default();
            // As far as it is permitted here.
            set_urgency(self.held.thread(), Urgency { policy, priority, nice });
        }
        self.executor.orders.waits_at(slot);
        if slot.is_some() {
            self.files.serve(self.replica.group.process, arrive.thread);
        }
        let arrived = || {
            reply.say(&Ok(()), &[]);
            debug!(%group, thread, residency = arrive.residency, "it runs");
        };
        if !arrive.in_call {
            return self.run(&residency, Some(arrived));
        }
        arrived();
        match self.until_answered(&residency)? {
            Some(gone) => Ok(gone),
            None => self.run(&residency, None::<fn()>),
        }
    }

    /// Runs the thread; says that it has `arrived` once it runs.
    fn run(
        &mut self,
        residency: &Residency,
        mut arrived: Option<impl FnOnce()>,
    ) -> io::Result<Gone> {
        loop {
            if arrived.is_none()
                && let Some(gone) = self.orders(residency, None)?
            {
                return Ok(gone);
            }
            self.seen = self.replica.mapped.seen();
            let runs = self.executor.orders.begins_to_run();
            let resumed = if runs { self.held.resume_emulated(0) } else { Ok(()) };
            if let Some(arrived) = arrived.take() {
                arrived();
            }
            resumed?;
            if !runs {
                continue;
            }
            let event = self.next()?;
            self.executor.orders.stands();
            let gone = match event {
                Event::SystemCall => self.call(residency)?,
                Event::Signal(signal) => self.signal(residency, signal)?,
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
    fn orders(&mut self, residency: &Residency, mut call: Call<'_>) -> io::Result<Option<Gone>> {
        while let Some(order) = self.executor.orders.look() {
            match order {
                Order::Recall(wanted) if wanted == residency.residency => {
                    let general = self.held.registers()?;
                    return self
                        .back(residency, ReturnReason::Recalled, call.is_some(), &general)
                        .map(Some);
                }
                Order::Rest => return Ok(Some(Gone::Back)),
                Order::SyscallResult(of, value) if of == residency.residency => {
                    if let Some(answer) = call.take() {
                        *answer = Some(value);
                        break;
                    }
                }
                Order::Expect | Order::Recall(_) | Order::SyscallResult(..) => {}
                Order::Arrive(_, reply) => {
                    reply.say(&Err(MoveError::Refused("it is here".to_owned())), &[]);
                }
                Order::End => return Ok(Some(Gone::Ended)),
            }
        }
        Ok(None)
    }

    /// The thread stands before a system call.
    fn call(&mut self, residency: &Residency) -> io::Result<Option<Gone>> {
        let began = Instant::now();
        let mut registers = self.held.registers()?;
        let number = registers.orig_rax;
        let kind = kind(number, &arguments(&registers));
        if kind == Kind::Request(Request::Move(self.replica.group.origin.into())) {
            // Wherever it goes on, it is there.
            (registers.rax, registers.orig_rax) = (0, u64::MAX);
            return self.back(residency, ReturnReason::Asked, false, &registers).map(Some);
        }
        // AnswerSource another convention its number is of another call.
        if self.goes_home(kind) || !self.is_of_own_convention(&registers) {
            shadow_stub::step_back(&mut registers, number);
            return self.back(residency, ReturnReason::Call, false, &registers).map(Some);
        }
        match kind {
            Kind::Request(request) => {
                self.executor.tally().local += 1;
                let answer = request.answer(self.replica.layer.own().0);
                self.returns(registers, answer.unwrap_or_default())?;
            }
            Kind::PageRecall | Kind::Home => {
                self.executor.tally().local += 1;
                self.give_way();
                self.returns(registers, 0)?;
                return Ok(None);
            }
            Kind::SetFs => {
                self.executor.tally().local += 1;
                registers.fs_base = registers.rsi;
                self.returns(registers, 0)?;
            }
            Kind::Change => {
                let change = Change {
                    group: self.replica.group,
                    thread: residency.thread,
                    number,
                    arguments: arguments(&registers),
                    stack: registers.rsp,
                };
                let Some(answer) = self.change(&change) else { return Ok(Some(Gone::Ended)) };
                if answer == detach_attach::NOT_MADE {
                    shadow_stub::step_back(&mut registers, number);
                    self.held.set_registers(&registers)?;
                    return Ok(None);
                }
                self.returns(registers, answer.cast_unsigned())?;
                self.executor.tally().changes.since(began);
            }
            Kind::Shadow => {
                self.yields = 0;
                if let Some(value) = self.on_file(residency, number, &arguments(&registers)) {
                    self.returns(registers, value)?;
                    self.executor.tally().made_here(number, began);
                    return Ok(None);
                }
                // What is asked and told of processors is so at home.
                if residency.slot.is_some() && !PROCESSORS.contains(&number.cast_signed()) {
                    residency.beside.bring(self.replica.group.process, residency.thread);
                } else {
                    residency.beside.send_back();
                }
                if !self.ask_shadow(residency, number, &registers) {
                    return Ok(Some(Gone::Ended));
                }
                let gone = self.until_answered(residency);
                self.executor.tally().called(number, began);
                return gone;
            }
        }
        Ok(None)
    }

    /// Has the memory changed; what that returns. `None`: the origin is no more.
    fn change(&self, change: &Change) -> Option<i64> {
        let began = Instant::now();
        let (_held, messages) = mm_lock::HeavyLockGuard::acquire(&*self.replica.lock);
        if messages > 0 {
            let mut tally = self.executor.tally();
            tally.locks.since(began);
            tally.lock_messages += messages;
        }
        let answer = self.replica.layer.ask(self.replica.group.home(), change, &[]);
        answer.ok().map(|(answer, _)| answer)
    }

    /// Whether the call that the thread stands before is one of this machine's own convention, not of `int $0x80`.
    fn is_of_own_convention(&self, registers: &Registers) -> bool {
        // The instruction `syscall` leaves where it returns to, which saves asking.
        registers.rcx == registers.rip
            || self.held.system_call_by().is_ok_and(|(_, own_convention)| own_convention)
    }

    /// Whether the thread makes a call at home.
    fn goes_home(&self, kind: Kind) -> bool {
        match kind {
            Kind::Home => true,
            // Who gives way again and again would do little else.
            Kind::PageRecall => false,
            // It is where it wants to be, and would be asked again and again.
            Kind::Request(request) => request.answer(self.replica.layer.own().0).is_none(),
            _ => self.replica.calls_home,
        }
    }

    /// The thread lets others run. One that does so again and again waits for something, and the two of us, who wake each other in between,
    /// would leave others nothing for a second (Linux 6.18, 2 processors).
    fn give_way(&mut self) {
        /// So often it is taken at its word.
        const OFTEN: u32 = 100;
        const MOMENT: Duration = Duration::from_micros(50);
        self.yields += 1;
        if self.yields < OFTEN {
            refit_sys::thread::give_way();
        } else {
            // That is what it is for.
            thread::sleep(MOMENT);
        }
    }

    fn returns(&self, mut registers: Registers, value: u64) -> io::Result<()> {
        registers.rax = value;
        registers.orig_rax = u64::MAX;
        self.held.set_registers(&registers)
    }

    /// Has its shadow make a call; whether there is one.
    fn ask_shadow(&self, residency: &Residency, number: u64, registers: &Registers) -> bool {
        let (arguments, stack) = (arguments(registers), registers.rsp);
        if let Some(slot) = residency.slot {
            slot.ask(number, arguments, stack);
            return true;
        }
        let group = self.replica.group;
        let make = SyscallRequest {
            group,
            thread: residency.thread,
            residency: residency.residency,
            number,
            arguments,
            stack,
        };
        self.replica.layer.send(group.home(), &make, &[]).is_ok()
    }

    /// The thread stands behind a call that its shadow makes.
    fn until_answered(&mut self, residency: &Residency) -> io::Result<Option<Gone>> {
        loop {
            let heard = residency.slot.map(|slot| slot.wakeup());
            let mut made = None;
            if let Some(gone) = self.orders(residency, Some(&mut made))? {
                return Ok(Some(gone));
            }
            if let Some(value) = made.or_else(|| residency.slot?.answer()) {
                self.returns(self.held.registers()?, value)?;
                return Ok(None);
            }
            match residency.slot.zip(heard) {
                None => self.executor.orders.await_one(adaptive_spin::MOMENT),
                Some((slot, heard)) => {
                    if !adaptive_spin::a_moment(|| slot.wakeup() != heard) {
                        slot.wait(heard, CALL_POLL);
                    }
                }
            }
        }
    }

    /// The task is about to be given a signal.
    fn signal(&mut self, residency: &Residency, signal: i32) -> io::Result<Option<Gone>> {
        let information = self.held.information()?;
        // Somebody says to look up.
        if information.code() <= 0 {
            return Ok(None);
        }
        let segment = signal == libc::SIGSEGV;
        if segment && information.code() == SEGV_ACCERR && self.replica.mapped.since(self.seen) {
            // It may have met a mapping that was being made, which is done when we are let in here.
            self.replica.settled();
            return Ok(None);
        }
        let missing = segment && information.code() == SEGV_MAPERR;
        if let Some(address) = information.address().filter(|_| missing) {
            match self.retrieve(residency, address) {
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
        self.back(residency, ReturnReason::Exception, false, &registers).map(Some)
    }

    /// Has what is at an address mapped; whether there is anything.
    fn retrieve(&mut self, residency: &Residency, address: u64) -> io::Result<bool> {
        fault_injection::reach(Step::Map)?;
        let began = Instant::now();
        let mut only_origin = false;
        loop {
            let asked = Instant::now();
            let told = self.replica.look_up(residency.thread, address, only_origin)?;
            self.executor.tally().looked_up(asked, told.messages);
            let (held, instruction, replica) = (&mut self.held, self.instruction, self.replica);
            let made = replica.map(&told, || match replica.store() {
                Some(store) => {
                    let into = (store, &replica.mapped);
                    let made = mmap::make_moving(held, instruction, into, &told.mapping, address);
                    made.map(|is_there| is_there.then_some(0))
                }
                None => {
                    let all = (&told.mapping, &told.beside[..]);
                    mmap::make(held, instruction, &replica.replica(), all)
                }
            });
            let mut tally = self.executor.tally();
            if let Some(made) = made {
                tally.faults.since(began);
                tally.by_members += u64::from(!told.by_origin());
                tally.fault_around += made.as_ref().map_or(0, |beside| beside.unwrap_or_default());
                return made.map(|beside| beside.is_some());
            }
            tally.retries += 1;
            // Others might say again what is just being changed.
            only_origin = true;
        }
    }

    /// Sends the thread back.
    fn back(
        &self,
        residency: &Residency,
        why: ReturnReason,
        in_call: bool,
        general: &Registers,
    ) -> io::Result<Gone> {
        fault_injection::reach(Step::Back)?;
        residency.beside.send_back();
        let half = ThreadState::of(&self.held, general)?;
        let (group, thread) = (self.replica.group, residency.thread);
        let came =
            ThreadReturned { group, thread, residency: residency.residency, why, in_call, half };
        let sent = self.replica.layer.send(group.home(), &came, &[]);
        debug!(%group, thread, residency = residency.residency, ?why, in_call, "it goes back");
        match sent {
            Ok(()) => Ok(Gone::Back),
            // Its origin is no more, and so is the program.
            Err(_) => Ok(Gone::Ended),
        }
    }
}

/// Calls that are about the processors of a thread.
const PROCESSORS: [i64; 2] = [libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity];
/// The kernel sends it, and no fault is described (`asm-generic/siginfo.h`).
const SI_KERNEL: i32 = 0x80;
/// The address is not mapped (`asm-generic/siginfo.h`).
const SEGV_MAPERR: i32 = 1;
/// It is, but not for that (`asm-generic/siginfo.h`).
const SEGV_ACCERR: i32 = 2;
