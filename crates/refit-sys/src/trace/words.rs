//! The general registers of a thread as words, for messages between processes.

use super::Registers;

/// The general registers in the kernel's order (`struct user_regs_struct`).
pub type RegisterWords = [u64; 27];

macro_rules! in_order {
    ($($name:ident)*) => {
        /// Returns the general registers as words.
        pub fn to_words(registers: &Registers) -> RegisterWords {
            [$(registers.$name),*]
        }

        /// Returns the general registers that these words stand for.
        pub fn from_words(words: &RegisterWords) -> Registers {
            let [$($name),*] = *words;
            Registers { $($name),* }
        }
    };
}

in_order! {
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_registers_are_the_same() {
        let words: RegisterWords = std::array::from_fn(|at| at as u64);
        let registers = from_words(&words);
        assert_eq!((registers.r15, registers.rip, registers.rsp, registers.gs), (0, 16, 19, 26));
        assert_eq!(to_words(&registers), words);
    }
}
