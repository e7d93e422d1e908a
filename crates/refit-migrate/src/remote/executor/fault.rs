//! Signals and faults of a thread that runs here.

use std::io;
use std::time::Instant;

use crate::fault_injection::{self, Step};
use crate::protocol::messages::ReturnReason;
use crate::remote::executor::residency::{ExecutorThread, Residency, ResidencyEnd};
use crate::remote::mmap;

/// Sent by the kernel, without a description of a fault (`asm-generic/siginfo.h`).
const SI_KERNEL: i32 = 0x80;
/// The address is not mapped (`asm-generic/siginfo.h`).
const SEGV_MAPERR: i32 = 1;
/// The address is mapped, but not for this access (`asm-generic/siginfo.h`).
const SEGV_ACCERR: i32 = 2;

impl ExecutorThread<'_> {
    /// Handles a signal that is about to be delivered to the task.
    pub(super) fn on_signal(
        &mut self,
        residency: &Residency,
        signal: i32,
    ) -> io::Result<Option<ResidencyEnd>> {
        let information = self.tracee.information()?;
        // Sent by a process: the interruption for the mailbox.
        if information.code() <= 0 {
            return Ok(None);
        }
        let segment = signal == libc::SIGSEGV;
        if segment
            && information.code() == SEGV_ACCERR
            && self.replica.mapped.since(self.seen_mappings)
        {
            // It may have met a mapping in the making, which is finished once we get the lock.
            self.replica.wait_for_mappings();
            return Ok(None);
        }
        let missing = segment && information.code() == SEGV_MAPERR;
        if let Some(address) = information.address().filter(|_| missing) {
            match self.retrieve(residency, address) {
                Ok(true) => return Ok(None),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    return Ok(Some(ResidencyEnd::Ended));
                }
                // Memory that cannot be mapped here can be touched at the origin.
                Err(_) => {}
            }
        }
        let mut registers = self.tracee.registers()?;
        registers.orig_rax = u64::MAX;
        if signal == libc::SIGTRAP && information.code() == SI_KERNEL {
            // The thread is behind the breakpoint, and must hit it at its origin.
            registers.rip -= 1;
        }
        self.send_back(residency, ReturnReason::Exception, false, &registers).map(Some)
    }

    /// Looks up and maps what is at an address. Returns whether anything is there.
    pub(super) fn retrieve(&mut self, residency: &Residency, address: u64) -> io::Result<bool> {
        fault_injection::reach(Step::Map)?;
        let began = Instant::now();
        let mut only_origin = false;
        loop {
            let lookup_began = Instant::now();
            let answer = self.replica.look_up(residency.thread, address, only_origin)?;
            self.executor.tally().count_lookup(lookup_began, answer.messages);
            let (tracee, instruction, replica) = (&mut self.tracee, self.instruction, self.replica);
            let made = replica.map(&answer, || match replica.store() {
                Some(store) => {
                    let into = (store, &replica.mapped);
                    let made =
                        mmap::make_moving(tracee, instruction, into, &answer.mapping, address);
                    made.map(|is_there| is_there.then_some(0))
                }
                None => {
                    let all = (&answer.mapping, &answer.beside[..]);
                    mmap::make(tracee, instruction, &replica.mappings(), all)
                }
            });
            let mut tally = self.executor.tally();
            if let Some(made) = made {
                tally.faults.since(began);
                tally.by_members += u64::from(!answer.by_origin());
                tally.fault_around += made.as_ref().map_or(0, |beside| beside.unwrap_or_default());
                return made.map(|beside| beside.is_some());
            }
            tally.retries += 1;
            // Other nodes might repeat the answer that is being invalidated.
            only_origin = true;
        }
    }
}
