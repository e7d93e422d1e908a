//! The system calls of a thread that runs here: made here, left to the shadow, or a reason to
//! return.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use refit_sys::adaptive_spin;
use refit_sys::restart::arguments;
use refit_sys::shadow_stub;
use refit_sys::trace::Registers;
use refit_tracer::request::Request;

use crate::mm_lock;
use crate::origin::detach_attach;
use crate::protocol::messages::{Change, ReturnReason, SyscallRequest};
use crate::remote::executor::residency::{ExecutorThread, Residency, ResidencyEnd};
use crate::syscalls::{Kind, kind};

/// The interval at which an executor that waits for a call's result looks for it by itself, in case
/// that its wakeup was missed.
const CALL_POLL: Duration = Duration::from_secs(1);
/// Calls that concern the processors of a thread.
const PROCESSORS: [i64; 2] = [libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity];

impl ExecutorThread<'_> {
    /// Handles a thread that stands at the entry of a system call.
    pub(super) fn on_call(&mut self, residency: &Residency) -> io::Result<Option<ResidencyEnd>> {
        let began = Instant::now();
        let mut registers = self.tracee.registers()?;
        let number = registers.orig_rax;
        let kind = kind(number, &arguments(&registers));
        if kind == Kind::Request(Request::Move(self.replica.group.origin.into())) {
            // Wherever the thread goes on, it is at the node that it asked for.
            (registers.rax, registers.orig_rax) = (0, u64::MAX);
            return self.send_back(residency, ReturnReason::Asked, false, &registers).map(Some);
        }
        // By another convention the number means another call.
        if self.goes_home(kind) || !self.is_of_own_convention(&registers) {
            shadow_stub::step_back(&mut registers, number);
            return self.send_back(residency, ReturnReason::Call, false, &registers).map(Some);
        }
        match kind {
            Kind::Request(request) => {
                self.executor.tally().local += 1;
                let answer = request.answer(self.replica.layer.own().0);
                self.return_value(registers, answer.unwrap_or_default())?;
            }
            Kind::Yield | Kind::Home => {
                self.executor.tally().local += 1;
                self.yield_processor();
                self.return_value(registers, 0)?;
                return Ok(None);
            }
            Kind::SetFs => {
                self.executor.tally().local += 1;
                registers.fs_base = registers.rsi;
                self.return_value(registers, 0)?;
            }
            Kind::Change => return self.change_memory(residency, number, registers, began),
            Kind::Shadow => {
                self.yields = 0;
                if let Some(value) = self.on_file(residency, number, &arguments(&registers)) {
                    self.return_value(registers, value)?;
                    self.executor.tally().count_file_call(number, began);
                    return Ok(None);
                }
                // Questions about processors must be answered for those that the shadow has at its
                // origin.
                if residency.slot.is_some() && !PROCESSORS.contains(&number.cast_signed()) {
                    residency.affinity.move_here(self.replica.group.process, residency.thread);
                } else {
                    residency.affinity.move_back();
                }
                if !self.ask_shadow(residency, number, &registers) {
                    return Ok(Some(ResidencyEnd::Ended));
                }
                let end = self.until_answered(residency);
                self.executor.tally().count_call(number, began);
                return end;
            }
        }
        Ok(None)
    }

    /// Handles a call that changes the memory.
    fn change_memory(
        &self,
        residency: &Residency,
        number: u64,
        mut registers: Registers,
        began: Instant,
    ) -> io::Result<Option<ResidencyEnd>> {
        let change = Change {
            group: self.replica.group,
            thread: residency.thread,
            number,
            arguments: arguments(&registers),
            stack: registers.rsp,
        };
        let Some(answer) = self.change(&change) else { return Ok(Some(ResidencyEnd::Ended)) };
        if answer == detach_attach::NOT_MADE {
            shadow_stub::step_back(&mut registers, number);
            self.tracee.set_registers(&registers)?;
            return Ok(None);
        }
        self.return_value(registers, answer.cast_unsigned())?;
        self.executor.tally().changes.since(began);
        Ok(None)
    }

    /// Asks the origin to change the memory. Returns the call's result, or `None` if the origin is
    /// gone.
    fn change(&self, change: &Change) -> Option<i64> {
        let began = Instant::now();
        let (_lock, messages) = mm_lock::HeavyLockGuard::acquire(&*self.replica.lock);
        if messages > 0 {
            let mut tally = self.executor.tally();
            tally.locks.since(began);
            tally.lock_messages += messages;
        }
        let answer = self.replica.layer.ask(self.replica.group.home(), change, &[]);
        answer.ok().map(|(answer, _)| answer)
    }

    /// Returns whether the thread makes its call by this machine's own convention, not by `int
    /// $0x80`.
    fn is_of_own_convention(&self, registers: &Registers) -> bool {
        // The `syscall` instruction leaves its return address there, which saves a question to the
        // kernel.
        registers.rcx == registers.rip
            || self.tracee.system_call_by().is_ok_and(|(_, own_convention)| own_convention)
    }

    /// Returns whether a thread returns to its origin for a call.
    fn goes_home(&self, kind: Kind) -> bool {
        match kind {
            Kind::Home => true,
            // A thread that yields again and again would do little else.
            Kind::Yield => false,
            // A thread that is where it wants to be would be sent back again and again.
            Kind::Request(request) => request.answer(self.replica.layer.own().0).is_none(),
            _ => self.replica.calls_home,
        }
    }

    /// Yields the processor for the thread. A thread that yields again and again waits for
    /// something; this thread and the task, which wake each other in between, would leave other
    /// threads no processor for a second (Linux 6.18, 2 processors).
    fn yield_processor(&mut self) {
        /// The number of yields after which the thread is made to sleep.
        const YIELDS_BEFORE_SLEEP: u32 = 100;
        const SLEEP: Duration = Duration::from_micros(50);
        self.yields += 1;
        if self.yields < YIELDS_BEFORE_SLEEP {
            refit_sys::thread::give_way();
        } else {
            // Sleeping is what leaves the processor to others.
            thread::sleep(SLEEP);
        }
    }

    fn return_value(&self, mut registers: Registers, value: u64) -> io::Result<()> {
        registers.rax = value;
        registers.orig_rax = u64::MAX;
        self.tracee.set_registers(&registers)
    }

    /// Has the shadow make a call. Returns whether the shadow can be reached.
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

    /// Waits for the result of a call that the shadow makes.
    pub(super) fn until_answered(
        &mut self,
        residency: &Residency,
    ) -> io::Result<Option<ResidencyEnd>> {
        loop {
            let heard = residency.slot.map(|slot| slot.wakeup());
            let mut made = None;
            if let Some(end) = self.handle_commands(residency, Some(&mut made))? {
                return Ok(Some(end));
            }
            if let Some(value) = made.or_else(|| residency.slot?.answer()) {
                self.return_value(self.tracee.registers()?, value)?;
                return Ok(None);
            }
            match residency.slot.zip(heard) {
                None => self.executor.mailbox.wait_until_filled(adaptive_spin::MOMENT),
                Some((slot, heard)) => {
                    if !adaptive_spin::a_moment(|| slot.wakeup() != heard) {
                        slot.wait(heard, CALL_POLL);
                    }
                }
            }
        }
    }
}
