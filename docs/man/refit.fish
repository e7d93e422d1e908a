# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_refit_global_optspecs
    string join \n json instance= log= log-format= h/help V/version
end

function __fish_refit_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_refit_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_refit_using_subcommand
    set -l cmd (__fish_refit_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c refit -n "__fish_refit_needs_command" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_needs_command" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_needs_command" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_needs_command" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_needs_command" -s V -l version -d 'Print version'
complete -c refit -n "__fish_refit_needs_command" -f -a "mount" -d 'Serve directories until Ctrl-C, then write everything back and unmount'
complete -c refit -n "__fish_refit_needs_command" -f -a "cache" -d 'Set who caches files: the kernel and refit, refit alone, or the better choice for each file'
complete -c refit -n "__fish_refit_needs_command" -f -a "mounts" -d 'List mounts'
complete -c refit -n "__fish_refit_needs_command" -f -a "handover" -d 'Let another build of refit continue the mounts, while programs use them'
complete -c refit -n "__fish_refit_needs_command" -f -a "install-unit" -d 'Install a systemd service that mounts, and hands over when it is reloaded'
complete -c refit -n "__fish_refit_needs_command" -f -a "take-over" -d 'Continue the mounts of another server, which starts this command'
complete -c refit -n "__fish_refit_needs_command" -f -a "umount" -d 'Write everything back and unmount'
complete -c refit -n "__fish_refit_needs_command" -f -a "ls" -d 'List objects'
complete -c refit -n "__fish_refit_needs_command" -f -a "show" -d 'Show details of an object or a process'
complete -c refit -n "__fish_refit_needs_command" -f -a "swap" -d 'Swap objects to another implementation while they are in use'
complete -c refit -n "__fish_refit_needs_command" -f -a "classes" -d 'List classes of objects, with their default implementations and numbers of objects'
complete -c refit -n "__fish_refit_needs_command" -f -a "upgrade" -d 'Upgrade a class: swap all its objects and its default implementation, or nothing'
complete -c refit -n "__fish_refit_needs_command" -f -a "wrap" -d 'Attach a wrapper, which intercepts every call, to objects while they are in use'
complete -c refit -n "__fish_refit_needs_command" -f -a "unwrap" -d 'Detach wrappers from objects'
complete -c refit -n "__fish_refit_needs_command" -f -a "load" -d 'Load a plugin with implementations to which objects can be swapped'
complete -c refit -n "__fish_refit_needs_command" -f -a "plugins" -d 'List loaded plugins: what they implement, the objects they serve, and the memory they take'
complete -c refit -n "__fish_refit_needs_command" -f -a "unload" -d 'Explain why a plugin stays mapped, and list what uses it'
complete -c refit -n "__fish_refit_needs_command" -f -a "adapt" -d 'Swap caches automatically according to their access pattern, until Ctrl-C'
complete -c refit -n "__fish_refit_needs_command" -f -a "changes" -d 'Show the journal of completed changes'
complete -c refit -n "__fish_refit_needs_command" -f -a "probe" -d 'Probe functions and instructions of a running program: counts, times and values'
complete -c refit -n "__fish_refit_needs_command" -f -a "cover" -d 'Report which basic blocks of a program execute; each block costs time only until reached'
complete -c refit -n "__fish_refit_needs_command" -f -a "drill" -d 'Measure the time in a function and its callees, then descend into the slowest callee'
complete -c refit -n "__fish_refit_needs_command" -f -a "optimize" -d 'Lay out the hot code of a running program anew, and keep that if it pays'
complete -c refit -n "__fish_refit_needs_command" -f -a "knob" -d 'Find constants in the code of a running program that act as tunables, and set them'
complete -c refit -n "__fish_refit_needs_command" -f -a "specialize" -d 'Make versions of a function for the hot values of an argument, and keep them if they pay'
complete -c refit -n "__fish_refit_needs_command" -f -a "repair" -d 'Remove spliced code that a killed refit left in a program'
complete -c refit -n "__fish_refit_needs_command" -f -a "funcs" -d 'List functions of a program or library: address, size, blocks, and sources'
complete -c refit -n "__fish_refit_needs_command" -f -a "cfg" -d 'Show the control flow of a function: basic blocks, edges, instructions, dead registers'
complete -c refit -n "__fish_refit_needs_command" -f -a "record" -d 'Record what instances, instrumented programs and the scheduler do'
complete -c refit -n "__fish_refit_needs_command" -f -a "report" -d 'Summarize a trace: time by class and method, context switches, waits, losses'
complete -c refit -n "__fish_refit_needs_command" -f -a "export" -d 'Export a trace to the format of another tool'
complete -c refit -n "__fish_refit_needs_command" -f -a "instruments" -d 'List instruments with their current cost; suspend and resume them'
complete -c refit -n "__fish_refit_needs_command" -f -a "top" -d 'Show objects, mounts, processors and changes, live'
complete -c refit -n "__fish_refit_needs_command" -f -a "metrics" -d 'Print the metrics of instances as OpenMetrics text'
complete -c refit -n "__fish_refit_needs_command" -f -a "run" -d 'Run a program under an instance of its own'
complete -c refit -n "__fish_refit_needs_command" -f -a "ps" -d 'List processes that run under instances'
complete -c refit -n "__fish_refit_needs_command" -f -a "limit" -d 'Limit the memory of a running program and of every program it starts'
complete -c refit -n "__fish_refit_needs_command" -f -a "tend" -d 'Supervise a program (started by `refit run`)'
complete -c refit -n "__fish_refit_needs_command" -f -a "boot" -d 'Start several instances as one system, between which programs can move'
complete -c refit -n "__fish_refit_needs_command" -f -a "instances" -d 'List booted instances'
complete -c refit -n "__fish_refit_needs_command" -f -a "shutdown" -d 'Shut down all booted instances'
complete -c refit -n "__fish_refit_needs_command" -f -a "move" -d 'Move a program, or one thread of it, to another instance'
complete -c refit -n "__fish_refit_needs_command" -f -a "spread" -d 'Distribute the threads of a program over all instances in turn'
complete -c refit -n "__fish_refit_needs_command" -f -a "kernel" -d 'Run one booted instance (started by `refit boot`)'
complete -c refit -n "__fish_refit_needs_command" -f -a "tour" -d 'Demonstrate swaps of file caches under running programs, for about a minute'
complete -c refit -n "__fish_refit_needs_command" -f -a "doctor" -d 'Check the facilities of this host: which are missing, what that costs, and how to get them'
complete -c refit -n "__fish_refit_needs_command" -f -a "debug-dump" -d 'Print the last 10,000 events of each instance, to diagnose a hang'
complete -c refit -n "__fish_refit_needs_command" -f -a "completions" -d 'Print shell completions'
complete -c refit -n "__fish_refit_needs_command" -f -a "header" -d 'Print a C header: to move threads between instances, or to instrument programs'
complete -c refit -n "__fish_refit_needs_command" -f -a "man" -d 'Write man pages'
complete -c refit -n "__fish_refit_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c refit -n "__fish_refit_using_subcommand mount" -l frames -d 'Memory for cached pages of each mount' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l cache -d 'Cache mode' -r -f -a "kernel\t'The kernel caches files too, and asks refit only on a miss'
direct\t'Every read and write goes to refit'
auto\t'refit chooses the mode for each file'
passthrough\t'The kernel accesses the files of the source itself, and refit sees no read and no write'
exclusive\t'The kernel caches files, and opens them without asking refit; nobody else may change the source'"
complete -c refit -n "__fish_refit_using_subcommand mount" -l workers -d 'Number of serving threads (default: one per processor)' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l implementation -d 'Initial implementation of file caches: shared or partitioned' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l compose -d 'Build mounts from the plan in this JSON file' -r -F
complete -c refit -n "__fish_refit_using_subcommand mount" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand mount" -l read-only -d 'Serve read-only: refuse writes'
complete -c refit -n "__fish_refit_using_subcommand mount" -l awake -d 'Keep processors out of idle states while programs use the mounts: quicker answers, for more power (root only)'
complete -c refit -n "__fish_refit_using_subcommand mount" -l allow-other -d 'Let other users access the mount (their own permissions still apply)'
complete -c refit -n "__fish_refit_using_subcommand mount" -l private -d 'Let only root access the mount, who mounts, and have the kernel check no permissions: fewer requests to refit'
complete -c refit -n "__fish_refit_using_subcommand mount" -l no-xattrs -d 'Serve no extended attributes, for a mount that other users cannot use: fewer requests to refit'
complete -c refit -n "__fish_refit_using_subcommand mount" -l until-eof -d 'Unmount also when standard input ends, even while the mount is in use: for programs that start refit and must not leave it running'
complete -c refit -n "__fish_refit_using_subcommand mount" -l hold -d 'Keep the mounts through a crash of the server: another server continues them, and programs only wait meanwhile (the default)'
complete -c refit -n "__fish_refit_using_subcommand mount" -l no-hold -d 'Serve from the process that is started: the mounts end with it'
complete -c refit -n "__fish_refit_using_subcommand mount" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand cache" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand cache" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand cache" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand cache" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand cache" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand mounts" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand mounts" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand mounts" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand mounts" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand mounts" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand handover" -l binary -d 'The program that takes over (default: the one of this command)' -r -F
complete -c refit -n "__fish_refit_using_subcommand handover" -l timeout -d 'The time that it has until it is ready, and once more until it serves' -r
complete -c refit -n "__fish_refit_using_subcommand handover" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand handover" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand handover" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand handover" -l all -d 'Hand over every instance of this user that has mounts'
complete -c refit -n "__fish_refit_using_subcommand handover" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand handover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand install-unit" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand install-unit" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand install-unit" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand install-unit" -l print -d 'Write the unit to standard output instead of a file'
complete -c refit -n "__fish_refit_using_subcommand install-unit" -l force -d 'Replace a file that is there already'
complete -c refit -n "__fish_refit_using_subcommand install-unit" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand install-unit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand take-over" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand take-over" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand take-over" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand take-over" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand take-over" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand umount" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand umount" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand umount" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand umount" -l discard -d 'Discard data that cannot be written back because the disk is full or has failed'
complete -c refit -n "__fish_refit_using_subcommand umount" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand umount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand ls" -l class -d 'List only objects of this class (the part of the name before the colon)' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l implementation -d 'List only objects with this implementation' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l on -d 'List only objects that use this one, directly or indirectly' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l under -d 'List only objects that this one uses, directly or indirectly' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l mount -d 'Select only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand ls" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand show" -l every -d 'Interval between updates' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l mount -d 'Select only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand show" -s f -l follow -d 'Repeat at each interval, until Ctrl-C'
complete -c refit -n "__fish_refit_using_subcommand show" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand swap" -l deadline -d 'Deadline of each swap, after which it is rolled back' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l reps -d 'Processors that share a representative: one, each, groups:4, or map:0,0,1,1 (default: as the implementation defines)' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l retries -d 'Number of retries of a swap that misses its deadline, after a pause that doubles' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l probation -d 'Check the condition of --until for this time, and swap back each object that violates it' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l until -d 'Condition that must hold: calls, errors, rate, mean, p50, p90, p99 or max, compared with a number, a time or `before`' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l with -d 'Another swap to make in the same change' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l every -d 'Swap one object after the other at this interval, again and again, until Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l for -d 'End after this time' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l protocol -d 'Transfer state by this protocol instead of the best that both implementations support' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l mount -d 'Select only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand swap" -l together -d 'Swap all objects as one change: no request sees a mix of old and new ones, and if one cannot be swapped, none is'
complete -c refit -n "__fish_refit_using_subcommand swap" -l dry-run -d 'Change nothing: show the possible transfer protocols, the chosen one, and a trial\'s time transfer, which blocks calls'
complete -c refit -n "__fish_refit_using_subcommand swap" -l without-state -d 'Do not transfer state, e.g. if the old implementation cannot export it; allowed only where the state is a hint, as in a replacement policy'
complete -c refit -n "__fish_refit_using_subcommand swap" -l empty-state -d 'Begin with an empty state: LOSES what the object holds; allowed only where the interface defines an empty state'
complete -c refit -n "__fish_refit_using_subcommand swap" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand swap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand classes" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand classes" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand classes" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand classes" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand classes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l deadline -d 'Time that a batch of objects may take before everything is rolled back' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l rate -d 'Maximum number of objects to swap per second (default: no limit)' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l pause -d 'Pause the current upgrade; until it resumes, some objects are old and some are new'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l resume -d 'Resume the paused upgrade'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand wrap" -l mount -d 'Select only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand wrap" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand wrap" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand wrap" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand wrap" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand wrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l mount -d 'Select only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l all -d 'Detach all wrappers'
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand unwrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand load" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand load" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand load" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand load" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand load" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand plugins" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand plugins" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand plugins" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand plugins" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand plugins" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand unload" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand unload" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand unload" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand unload" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand unload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand adapt" -l every -d 'Sampling interval' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l above -d 'Swap to `sequential` if at least this share of accesses, in percent, is sequential' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l below -d 'Swap back if less than this share of accesses, in percent, is sequential' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l overlap-above -d 'Swap to `partitioned` if at least this share of calls, in percent, overlaps another' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l overlap-below -d 'Swap back if less than this share of calls, in percent, overlaps another' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l for -d 'End after this time (default: at Ctrl-C)' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand adapt" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand adapt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand changes" -s n -l last -d 'Print at most this many of the latest existing entries' -r
complete -c refit -n "__fish_refit_using_subcommand changes" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand changes" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand changes" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand changes" -s f -l follow -d 'Keep running, and print changes as they complete'
complete -c refit -n "__fish_refit_using_subcommand changes" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand changes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand probe" -s p -l pid -d 'Probe the processes with these IDs' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -s e -l expression -d 'Probe, or several, as below; may be repeated' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l interval -d 'Print the counts so far at this interval' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l for -d 'End after this time (default: when the program ends, or at Ctrl-C)' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -s o -l output -d 'Write records of events and spans to this trace' -r -F
complete -c refit -n "__fish_refit_using_subcommand probe" -l svg -d 'Draw what was counted by ustack as a flame graph to this file (SVG)' -r -F
complete -c refit -n "__fish_refit_using_subcommand probe" -l folded -d 'Write what was counted by ustack to this file, a line per stack, for other tools' -r -F
complete -c refit -n "__fish_refit_using_subcommand probe" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand probe" -s l -l list -d 'Only list the places of the probes'
complete -c refit -n "__fish_refit_using_subcommand probe" -l lines -d 'With --list, show the source file and line of each place, from debug information'
complete -c refit -n "__fish_refit_using_subcommand probe" -l dry-run -d 'Only print what would change in the program'
complete -c refit -n "__fish_refit_using_subcommand probe" -l openmetrics -d 'Print the counts as OpenMetrics text'
complete -c refit -n "__fish_refit_using_subcommand probe" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand cover" -s p -l pid -d 'Watch the process with this ID' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l module -d 'Watch mapped files whose path or file name matches; may be repeated (default: the program itself)' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l hottest -d 'Report this many of the blocks that run most often (default: 20)' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l drcov -d 'Write the reached blocks to this file in drcov format, for Lighthouse, Ghidra and others' -r -F
complete -c refit -n "__fish_refit_using_subcommand cover" -l lcov -d 'Write the lines of source that were run to this file in LCOV format, for genhtml and others; needs debug information' -r -F
complete -c refit -n "__fish_refit_using_subcommand cover" -l interval -d 'Print the result so far at this interval' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l for -d 'End after this time (default: when the program ends, or at Ctrl-C)' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand cover" -l all -d 'Watch also blocks without room for a jump: their functions run in copies, whose probes stay until the end'
complete -c refit -n "__fish_refit_using_subcommand cover" -l counts -d 'Count how often each block runs, as RUNS; the probes stay until the end'
complete -c refit -n "__fish_refit_using_subcommand cover" -l functions -d 'Report also each function'
complete -c refit -n "__fish_refit_using_subcommand cover" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand cover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand drill" -s p -l pid -d 'Process ID of the program' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l for -d 'Time to measure each level' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l depth -d 'Maximum number of levels' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l share -d 'Descend only into a callee with at least this share of the time, in percent' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l svg -d 'Draw a flame graph to this file (SVG)' -r -F
complete -c refit -n "__fish_refit_using_subcommand drill" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand drill" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand drill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand optimize" -s p -l pid -d 'Process ID of the program' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l for -d 'Time to profile the program' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l file -d 'Optimize this file: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l func -d 'Optimize these functions and what they call: a name, with * and ? as wildcards' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l progress -d 'Measure progress by this place, as in `refit probe` [default: a function that is found]' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l slot -d 'Time of each measurement; there are four in a round, and 20 to 120 rounds' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l svg -d 'Draw the cache lines of the hot code, before and after, to this file' -r -F
complete -c refit -n "__fish_refit_using_subcommand optimize" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand optimize" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand optimize" -l no-placebo -d 'Do not measure what copies in the old order gain'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l dry-run -d 'Only profile the program, store the profile, and say what would be copied'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l unproved -d 'Keep the copies without measuring what they gain'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l from-profile -d 'Do not count, but use the stored profile of the binary'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l run -d 'Start COMMAND with its code laid out from the stored profile, before its first instruction'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l undo -d 'Take the copies out again'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l status -d 'Say whether the program is optimised'
complete -c refit -n "__fish_refit_using_subcommand optimize" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand optimize" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -s p -l pid -d 'Process ID of the program' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -l file -d 'A file that it has mapped: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -f -a "list" -d 'List knobs, the most promising first'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -f -a "get" -d 'Show a knob: its number, use, range, risks'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -f -a "set" -d 'Set a knob'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -f -a "unset" -d 'Restore the number that the file has'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -f -a "apply" -d 'Set all knobs that were saved for the files that the program has mapped'
complete -c refit -n "__fish_refit_using_subcommand knob; and not __fish_seen_subcommand_from list get set unset apply help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l func -d 'Only knobs of these functions: a name, with * and ? as wildcards' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l for -d 'Count calls for this time, and list only knobs of functions that run' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l file -d 'A file that it has mapped: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l set -d 'Only knobs that are set'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l all -d 'Also list constants that are probably no tunables'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l for -d 'Count for this time how often the comparison is made, and with which numbers' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l file -d 'A file that it has mapped: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l elsewhere -d 'Also list other functions with the same number and use: copies by inlining, perhaps'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l file -d 'A file that it has mapped: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l unchecked -d 'Set it although refit cannot rule out that something else depends on it'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l save -d 'Save it for `refit knob apply`, by the build id of the file'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l file -d 'A file that it has mapped: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l all -d 'Restore all knobs of the program'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l forget -d 'Remove it from those that were saved, too'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from unset" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from apply" -l file -d 'A file that it has mapped: a part of its path [default: the program\'s own]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from apply" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from apply" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from apply" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from apply" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from help" -f -a "list" -d 'List knobs, the most promising first'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from help" -f -a "get" -d 'Show a knob: its number, use, range, risks'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from help" -f -a "set" -d 'Set a knob'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from help" -f -a "unset" -d 'Restore the number that the file has'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from help" -f -a "apply" -d 'Set all knobs that were saved for the files that the program has mapped'
complete -c refit -n "__fish_refit_using_subcommand knob; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c refit -n "__fish_refit_using_subcommand specialize" -s p -l pid -d 'Process ID of the program' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l for -d 'Time to count the values of the argument' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l progress -d 'Measure progress by this place, as in `refit probe` [default: a function that is found]' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l slot -d 'Time of each measurement; there are four in a round, and 20 to 120 rounds' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l unroll -d 'Most instructions by which unrolled loops may enlarge a version' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand specialize" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand specialize" -l dry-run -d 'Only count the values, and say what the versions would be'
complete -c refit -n "__fish_refit_using_subcommand specialize" -l unproved -d 'Keep the versions without measuring what they gain'
complete -c refit -n "__fish_refit_using_subcommand specialize" -l undo -d 'Take all versions out again'
complete -c refit -n "__fish_refit_using_subcommand specialize" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand specialize" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand repair" -s p -l pid -d 'Process ID of the program' -r
complete -c refit -n "__fish_refit_using_subcommand repair" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand repair" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand repair" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand repair" -l verify -d 'Change nothing; check whether all its code equals that in its files'
complete -c refit -n "__fish_refit_using_subcommand repair" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand repair" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand funcs" -s p -l program -d 'Process ID, or path of a program or library' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l module -d 'Select modules of the process by name (libc), or by a pattern over their file names or paths (default: the program itself)' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand funcs" -l lines -d 'Show the source file and line of each function, from debug information, and the functions that are inlined into it'
complete -c refit -n "__fish_refit_using_subcommand funcs" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand funcs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand cfg" -s p -l program -d 'Process ID, or path of a program or library' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l module -d 'Select modules of the process by name (libc), or by a pattern over their file names or paths (default: the program itself)' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l svg -d 'Draw the graph to this file (SVG)' -r -F
complete -c refit -n "__fish_refit_using_subcommand cfg" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand cfg" -l live -d 'Show which registers and flags are dead before each instruction'
complete -c refit -n "__fish_refit_using_subcommand cfg" -l lines -d 'Show the source files and lines of each block, and the functions that are inlined in it'
complete -c refit -n "__fish_refit_using_subcommand cfg" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand cfg" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand record" -s p -l pid -d 'Record only this process: an instance, or any program for its context switches' -r
complete -c refit -n "__fish_refit_using_subcommand record" -s e -l expression -d 'Probe of the process or command, as in `refit probe`; counts are recorded as samples' -r
complete -c refit -n "__fish_refit_using_subcommand record" -s o -l output -d 'Trace file to write' -r -F
complete -c refit -n "__fish_refit_using_subcommand record" -l mode -d 'The way to write the records, and what to do when a buffer is full' -r -f -a "stream\t'Write records continuously; when a buffer is full, lose new records and count them'
flight\t'Overwrite the oldest records; write what is in the buffers at the end'
dump\t'Stop all processors to write full buffers; lose nothing, and report the time'"
complete -c refit -n "__fish_refit_using_subcommand record" -l ring -d 'Size of each processor\'s buffer, e.g. 64M' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l rotate -d 'Begin another file when the current one reaches this size' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l keep -d 'Number of files to keep, of which the oldest are removed; 0 keeps all' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l for -d 'End after this time (default: when the command ends, or at Ctrl-C)' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l stack-bytes -d 'Bytes of each stack that are examined, for --stacks' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l rounds -d 'Number of runs with and without recording, for --check' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand record" -l no-switches -d 'Do not record context switches'
complete -c refit -n "__fish_refit_using_subcommand record" -l stacks -d 'Record where threads of the process or command stand when they lose the processor, and who has called there'
complete -c refit -n "__fish_refit_using_subcommand record" -l check -d 'Run the command alternately with and without recording, and report the difference'
complete -c refit -n "__fish_refit_using_subcommand record" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand report" -l class -d 'Select only this class, or this event' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l thread -d 'Select only this thread' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l processor -d 'Select only this processor' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l time -d 'Select only what ends in this period, counted from the first record, e.g. 1s..1500ms' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l limit -d 'Maximum share of a time to subtract as the cost of recording, in percent' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand report" -l classes -d 'Show the instrumented classes and methods, and the cost of recording them, instead of times'
complete -c refit -n "__fish_refit_using_subcommand report" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand export" -l to -d 'Format of the output' -r -f -a "perfetto\t'A timeline for ui.perfetto.dev and trace_processor'
folded\t'One line per stack with its time in ns, for flame graphs'
firefox\t'A profile for profiler.firefox.com'
ndjson\t'One JSON object per record, one per line'"
complete -c refit -n "__fish_refit_using_subcommand export" -s o -l output -d 'Output file, replaced when everything is written (default: standard output)' -r -F
complete -c refit -n "__fish_refit_using_subcommand export" -l class -d 'Select only this class, or this event' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l thread -d 'Select only this thread' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l processor -d 'Select only this processor' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l time -d 'Select only what ends in this period, counted from the first record, e.g. 1s..1500ms' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand export" -l svg -d 'Draw a flame graph instead of writing the stacks'
complete -c refit -n "__fish_refit_using_subcommand export" -l off-cpu -d 'Fold the stacks on which threads stood while they had no processor, instead of intervals'
complete -c refit -n "__fish_refit_using_subcommand export" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l session -d 'Session to use (default: that of the instances of this user)' -r -F
complete -c refit -n "__fish_refit_using_subcommand instruments" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand instruments" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand instruments" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand instruments" -l suspend -d 'Suspend the instruments in all processes'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l resume -d 'Resume the instruments'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l reset -d 'Reset the values of the instruments to zero'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand instruments" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand top" -l every -d 'Interval between updates; longer if updates would take more than 1 % of the time' -r
complete -c refit -n "__fish_refit_using_subcommand top" -s n -l times -d 'Print this many tables as text, then exit' -r
complete -c refit -n "__fish_refit_using_subcommand top" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand top" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand top" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand top" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand metrics" -s o -l output -d 'Write the metrics to this file, atomically' -r -F
complete -c refit -n "__fish_refit_using_subcommand metrics" -l every -d 'Rewrite the file at this interval, until Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l listen -d 'Serve the metrics over HTTP at /metrics of this address, until Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand metrics" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand run" -l memory -d 'Limit the anonymous memory of the program and of every program it starts, e.g. 64M; pages above the limit are compressed or written to a swap file' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l on -d 'Run the program under this booted instance, on its processors, instead of under an instance of its own' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l roam -d 'Move its threads to the next instance automatically, for testing: at this interval, e.g. 10ms; `once`; or once, with a return for each system call (`syscall`)' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand run" -l movable -d 'Make the program, and every program it starts, movable: without vDSO and restartable sequences, and with the same addresses each time'
complete -c refit -n "__fish_refit_using_subcommand run" -l spread -d 'Distribute its threads, present and future, over all instances in turn, as `refit spread` does; the program sees the processors of all instances of this host'
complete -c refit -n "__fish_refit_using_subcommand run" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand ps" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand ps" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand ps" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand ps" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand ps" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand limit" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand limit" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand limit" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand limit" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand limit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand tend" -l memory -d 'Memory limit of the program and its descendants, in bytes' -r
complete -c refit -n "__fish_refit_using_subcommand tend" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand tend" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand tend" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand tend" -l movable -d 'Make the program movable'
complete -c refit -n "__fish_refit_using_subcommand tend" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand tend" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand boot" -l instances -d 'Number of instances' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l cpus -d 'Processors of each instance, e.g. 0-3/4-7 (default: the processors of this host in turn)' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l number -d 'Number of the first instance' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l listen -d 'Listen here for instances of other hosts; further instances take the next ports' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l join -d 'Join this listening instance of another host, and every instance that it knows' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l authority -d 'Certificate of the authority that signed the certificates of all instances (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand boot" -l certificate -d 'Certificate of this host\'s instances (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand boot" -l key -d 'Private key of that certificate (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand boot" -l silence -d 'Time without a message after which an instance of another host counts as dead; give all instances the same' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l memory -d 'Limit the memory of each instance for programs that move, e.g. 2G: frames of programs that began there, and pages that it holds for others (default: no limit)' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l pages -d 'The way in which instances of one host access the memory of each other' -r -f -a "borrow\t'Share memory: borrow mappings of it'
move\t'Move pages between instances, as between hosts'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l ahead -d 'Number of pages to move, or of mappings to borrow, at once: 1 to 64, or `adaptive`' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l retrieval -d 'Protocol by which a program\'s instances find what is mapped at an address; `refit swap retrieval:PID` changes it later' -r -f -a "directory\t'Ask the instance where the program began'
all\t'Ask all instances at once'
chain\t'Ask one instance, which answers or asks the next'
group\t'Ask all instances with memory of the program at once'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l lock -d 'Protocol by which a program\'s instances agree on who changes its memory' -r -f -a "queue\t'The instance where the program began makes all changes, one after the other'
lamport\t'Instances with memory of the program agree on each change first, by Lamport\'s algorithm'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l insecure -d 'Use no certificates, on a network where everybody is trusted'
complete -c refit -n "__fish_refit_using_subcommand boot" -l awake -d 'Keep idle processors of this host awake while programs have threads at other instances: calls and moves take half the time or less, but the host uses more power'
complete -c refit -n "__fish_refit_using_subcommand boot" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand boot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand instances" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand instances" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand instances" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand instances" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand instances" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l kill -d 'Kill programs that run under the instances'
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand shutdown" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand move" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand move" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand move" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand move" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand move" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand spread" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand spread" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand spread" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand spread" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand spread" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand kernel" -l listen -d 'Listen here for instances of other hosts; further instances take the next ports' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l join -d 'Join this listening instance of another host, and every instance that it knows' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l authority -d 'Certificate of the authority that signed the certificates of all instances (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand kernel" -l certificate -d 'Certificate of this host\'s instances (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand kernel" -l key -d 'Private key of that certificate (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand kernel" -l silence -d 'Time without a message after which an instance of another host counts as dead; give all instances the same' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l memory -d 'Limit the memory of each instance for programs that move, e.g. 2G: frames of programs that began there, and pages that it holds for others (default: no limit)' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l pages -d 'The way in which instances of one host access the memory of each other' -r -f -a "borrow\t'Share memory: borrow mappings of it'
move\t'Move pages between instances, as between hosts'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l ahead -d 'Number of pages to move, or of mappings to borrow, at once: 1 to 64, or `adaptive`' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l retrieval -d 'Protocol by which a program\'s instances find what is mapped at an address; `refit swap retrieval:PID` changes it later' -r -f -a "directory\t'Ask the instance where the program began'
all\t'Ask all instances at once'
chain\t'Ask one instance, which answers or asks the next'
group\t'Ask all instances with memory of the program at once'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l lock -d 'Protocol by which a program\'s instances agree on who changes its memory' -r -f -a "queue\t'The instance where the program began makes all changes, one after the other'
lamport\t'Instances with memory of the program agree on each change first, by Lamport\'s algorithm'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l insecure -d 'Use no certificates, on a network where everybody is trusted'
complete -c refit -n "__fish_refit_using_subcommand kernel" -l awake -d 'Keep idle processors of this host awake while programs have threads at other instances: calls and moves take half the time or less, but the host uses more power'
complete -c refit -n "__fish_refit_using_subcommand kernel" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand kernel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand tour" -l time -d 'Time for which the programs run; for a third of it, their file caches are swapped' -r
complete -c refit -n "__fish_refit_using_subcommand tour" -l scratch -d 'Directory in which to create the scratch directory' -r -f -a "(__fish_complete_directories)"
complete -c refit -n "__fish_refit_using_subcommand tour" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand tour" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand tour" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand tour" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand tour" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand doctor" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand doctor" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand doctor" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand doctor" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand completions" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand completions" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand completions" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand completions" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand header" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand header" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand header" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand header" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand header" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand man" -l instance -d 'Ask only the instance with this process ID (default: every instance of this user)' -r
complete -c refit -n "__fish_refit_using_subcommand man" -l log -d 'Log refit\'s own events to standard error: a level, or levels per module, e.g. warn,refit_migrate=debug [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand man" -l log-format -d 'Format of the log (default: `journal` if standard error is the journal, otherwise `text`) [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'One readable line per event'
json\t'One JSON object per event'
journal\t'One line per event, with the priority prefix that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand man" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "mount" -d 'Serve directories until Ctrl-C, then write everything back and unmount'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "cache" -d 'Set who caches files: the kernel and refit, refit alone, or the better choice for each file'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "mounts" -d 'List mounts'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "handover" -d 'Let another build of refit continue the mounts, while programs use them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "install-unit" -d 'Install a systemd service that mounts, and hands over when it is reloaded'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "take-over" -d 'Continue the mounts of another server, which starts this command'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "umount" -d 'Write everything back and unmount'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "ls" -d 'List objects'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "show" -d 'Show details of an object or a process'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "swap" -d 'Swap objects to another implementation while they are in use'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "classes" -d 'List classes of objects, with their default implementations and numbers of objects'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "upgrade" -d 'Upgrade a class: swap all its objects and its default implementation, or nothing'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "wrap" -d 'Attach a wrapper, which intercepts every call, to objects while they are in use'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "unwrap" -d 'Detach wrappers from objects'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "load" -d 'Load a plugin with implementations to which objects can be swapped'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "plugins" -d 'List loaded plugins: what they implement, the objects they serve, and the memory they take'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "unload" -d 'Explain why a plugin stays mapped, and list what uses it'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "adapt" -d 'Swap caches automatically according to their access pattern, until Ctrl-C'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "changes" -d 'Show the journal of completed changes'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "probe" -d 'Probe functions and instructions of a running program: counts, times and values'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "cover" -d 'Report which basic blocks of a program execute; each block costs time only until reached'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "drill" -d 'Measure the time in a function and its callees, then descend into the slowest callee'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "optimize" -d 'Lay out the hot code of a running program anew, and keep that if it pays'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "knob" -d 'Find constants in the code of a running program that act as tunables, and set them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "specialize" -d 'Make versions of a function for the hot values of an argument, and keep them if they pay'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "repair" -d 'Remove spliced code that a killed refit left in a program'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "funcs" -d 'List functions of a program or library: address, size, blocks, and sources'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "cfg" -d 'Show the control flow of a function: basic blocks, edges, instructions, dead registers'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "record" -d 'Record what instances, instrumented programs and the scheduler do'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "report" -d 'Summarize a trace: time by class and method, context switches, waits, losses'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "export" -d 'Export a trace to the format of another tool'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "instruments" -d 'List instruments with their current cost; suspend and resume them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "top" -d 'Show objects, mounts, processors and changes, live'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "metrics" -d 'Print the metrics of instances as OpenMetrics text'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "run" -d 'Run a program under an instance of its own'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "ps" -d 'List processes that run under instances'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "limit" -d 'Limit the memory of a running program and of every program it starts'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "tend" -d 'Supervise a program (started by `refit run`)'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "boot" -d 'Start several instances as one system, between which programs can move'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "instances" -d 'List booted instances'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "shutdown" -d 'Shut down all booted instances'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "move" -d 'Move a program, or one thread of it, to another instance'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "spread" -d 'Distribute the threads of a program over all instances in turn'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "kernel" -d 'Run one booted instance (started by `refit boot`)'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "tour" -d 'Demonstrate swaps of file caches under running programs, for about a minute'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "doctor" -d 'Check the facilities of this host: which are missing, what that costs, and how to get them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "debug-dump" -d 'Print the last 10,000 events of each instance, to diagnose a hang'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "completions" -d 'Print shell completions'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "header" -d 'Print a C header: to move threads between instances, or to instrument programs'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "man" -d 'Write man pages'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts handover install-unit take-over umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill optimize knob specialize repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c refit -n "__fish_refit_using_subcommand help; and __fish_seen_subcommand_from knob" -f -a "list" -d 'List knobs, the most promising first'
complete -c refit -n "__fish_refit_using_subcommand help; and __fish_seen_subcommand_from knob" -f -a "get" -d 'Show a knob: its number, use, range, risks'
complete -c refit -n "__fish_refit_using_subcommand help; and __fish_seen_subcommand_from knob" -f -a "set" -d 'Set a knob'
complete -c refit -n "__fish_refit_using_subcommand help; and __fish_seen_subcommand_from knob" -f -a "unset" -d 'Restore the number that the file has'
complete -c refit -n "__fish_refit_using_subcommand help; and __fish_seen_subcommand_from knob" -f -a "apply" -d 'Set all knobs that were saved for the files that the program has mapped'
