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

complete -c refit -n "__fish_refit_needs_command" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_needs_command" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_needs_command" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_needs_command" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_needs_command" -s V -l version -d 'Print version'
complete -c refit -n "__fish_refit_needs_command" -f -a "mount" -d 'Serve directories; runs until Ctrl-C, then stores everything and unmounts'
complete -c refit -n "__fish_refit_needs_command" -f -a "cache" -d 'Change who caches files: the kernel too, refit alone, or whatever suits each file'
complete -c refit -n "__fish_refit_needs_command" -f -a "mounts" -d 'List what is mounted'
complete -c refit -n "__fish_refit_needs_command" -f -a "umount" -d 'Store everything and unmount'
complete -c refit -n "__fish_refit_needs_command" -f -a "ls" -d 'List objects'
complete -c refit -n "__fish_refit_needs_command" -f -a "show" -d 'Show everything that is known about an object, or a process'
complete -c refit -n "__fish_refit_needs_command" -f -a "swap" -d 'Swap objects for another implementation while they are used'
complete -c refit -n "__fish_refit_needs_command" -f -a "classes" -d 'List the classes of objects: what new ones are made of, and how many there are'
complete -c refit -n "__fish_refit_needs_command" -f -a "upgrade" -d 'Swap all objects of a class and what new ones are made of, or nothing'
complete -c refit -n "__fish_refit_needs_command" -f -a "wrap" -d 'Put code around objects that sees every call, while they are used'
complete -c refit -n "__fish_refit_needs_command" -f -a "unwrap" -d 'Take such code away again'
complete -c refit -n "__fish_refit_needs_command" -f -a "load" -d 'Load implementations that were built apart, so that objects can be swapped to them'
complete -c refit -n "__fish_refit_needs_command" -f -a "plugins" -d 'List loaded code: what it implements, how many objects it serves, the memory that it takes'
complete -c refit -n "__fish_refit_needs_command" -f -a "unload" -d 'Say why loaded code stays mapped, and who uses it'
complete -c refit -n "__fish_refit_needs_command" -f -a "adapt" -d 'Have caches swapped by how they are used, until Ctrl-C'
complete -c refit -n "__fish_refit_needs_command" -f -a "changes" -d 'Show the journal: every change that has ended'
complete -c refit -n "__fish_refit_needs_command" -f -a "probe" -d 'Watch functions and instructions of a program that runs: how often, how long, with what'
complete -c refit -n "__fish_refit_needs_command" -f -a "cover" -d 'Watch which basic blocks of a program are reached, at a cost that vanishes as they are'
complete -c refit -n "__fish_refit_needs_command" -f -a "drill" -d 'Measure where the time in a function goes: its callees, and on into the one that takes most'
complete -c refit -n "__fish_refit_needs_command" -f -a "repair" -d 'Take out of a program what a killed refit has left'
complete -c refit -n "__fish_refit_needs_command" -f -a "funcs" -d 'List functions of a program or library: where they are, how large, who knows of them'
complete -c refit -n "__fish_refit_needs_command" -f -a "cfg" -d 'Show the control flow of a function: basic blocks, edges, instructions, what is dead where'
complete -c refit -n "__fish_refit_needs_command" -f -a "record" -d 'Record what instances, instrumented programs and the scheduler do'
complete -c refit -n "__fish_refit_needs_command" -f -a "report" -d 'Show what a trace says: time by class and method, context switches, waits, losses'
complete -c refit -n "__fish_refit_needs_command" -f -a "export" -d 'Make a file for another tool out of a trace'
complete -c refit -n "__fish_refit_needs_command" -f -a "instruments" -d 'List what is instrumented and what that costs now; suspend and resume it'
complete -c refit -n "__fish_refit_needs_command" -f -a "top" -d 'Watch objects, mounts, processors and changes, live'
complete -c refit -n "__fish_refit_needs_command" -f -a "metrics" -d 'Print what instances count, as OpenMetrics text'
complete -c refit -n "__fish_refit_needs_command" -f -a "run" -d 'Run a program under an instance of its own, as if there were none'
complete -c refit -n "__fish_refit_needs_command" -f -a "ps" -d 'List the processes of programs that run under instances'
complete -c refit -n "__fish_refit_needs_command" -f -a "limit" -d 'Limit the memory of a program that runs, and of all that it starts'
complete -c refit -n "__fish_refit_needs_command" -f -a "tend" -d 'Tend a program: what `refit run` starts beside it'
complete -c refit -n "__fish_refit_needs_command" -f -a "boot" -d 'Start several instances that make one system: programs move between them'
complete -c refit -n "__fish_refit_needs_command" -f -a "instances" -d 'List the instances that make one system'
complete -c refit -n "__fish_refit_needs_command" -f -a "shutdown" -d 'End the instances that make one system'
complete -c refit -n "__fish_refit_needs_command" -f -a "move" -d 'Have a program, or one thread of it, go on at another instance'
complete -c refit -n "__fish_refit_needs_command" -f -a "spread" -d 'Have the threads of a program run at all instances in turn'
complete -c refit -n "__fish_refit_needs_command" -f -a "kernel" -d 'Be one of several instances: what `refit boot` starts'
complete -c refit -n "__fish_refit_needs_command" -f -a "tour" -d 'Watch caches being swapped under running programs, for about a minute'
complete -c refit -n "__fish_refit_needs_command" -f -a "doctor" -d 'Check what this host offers, what is missing, what that costs and how to get it'
complete -c refit -n "__fish_refit_needs_command" -f -a "debug-dump" -d 'Print the last 10,000 events of instances: what they did, step by step'
complete -c refit -n "__fish_refit_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c refit -n "__fish_refit_needs_command" -f -a "header" -d 'Print a C header: for threads that ask to go to another instance, or for instruments'
complete -c refit -n "__fish_refit_needs_command" -f -a "man" -d 'Write man pages'
complete -c refit -n "__fish_refit_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c refit -n "__fish_refit_using_subcommand mount" -l frames -d 'Memory for cached pages, per mount' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l cache -d 'Cache mode' -r -f -a "kernel\t'The kernel caches too; refit is asked on a miss'
direct\t'Every read and write comes to refit'
auto\t'The mode that suits each file'"
complete -c refit -n "__fish_refit_using_subcommand mount" -l workers -d 'Threads that serve; one per processor unless said otherwise' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l implementation -d 'Implementation that file caches begin with: shared or partitioned' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l compose -d 'Build mounts of the blocks that this file names, connected as it says (JSON)' -r -F
complete -c refit -n "__fish_refit_using_subcommand mount" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand mount" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand mount" -l read-only -d 'Refuse to write'
complete -c refit -n "__fish_refit_using_subcommand mount" -l allow-other -d 'Let other users in (their own permissions still apply)'
complete -c refit -n "__fish_refit_using_subcommand mount" -l until-eof -d 'Unmount as well when standard input ends, whoever uses the mount: for programs that start refit and must not leave it behind'
complete -c refit -n "__fish_refit_using_subcommand mount" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand cache" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand cache" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand cache" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand cache" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand cache" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand mounts" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand mounts" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand mounts" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand mounts" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand mounts" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand umount" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand umount" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand umount" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand umount" -l discard -d 'Give up what cannot be stored, because the disk is full or has failed'
complete -c refit -n "__fish_refit_using_subcommand umount" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand umount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand ls" -l class -d 'Only objects of this class (the part of their names before the colon)' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l implementation -d 'Only objects that this implementation serves' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l on -d 'Only objects that stand on this one: call it, or call one that does' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l under -d 'Only objects on which this one stands' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l mount -d 'Only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand ls" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand ls" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand show" -l every -d 'Interval' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l mount -d 'Only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand show" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand show" -s f -l follow -d 'Stay and show it again and again; Ctrl-C ends it'
complete -c refit -n "__fish_refit_using_subcommand show" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand swap" -l deadline -d 'Time that each object may take before it is rolled back' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l reps -d 'Which processors share a representative: one, each, groups:4, map:0,0,1,1; as the implementation has it unless said otherwise' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l retries -d 'Retries of each object, after a pause that doubles, when it misses its deadline' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l probation -d 'Each has to keep to the condition of --until for this time, or is swapped back' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l until -d 'Condition that has to hold: calls, errors, rate, mean, p50, p90, p99, max, compared with numbers, times or `before`' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l with -d 'Another change that is made with it' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l every -d 'Swap again and again, one object after the other, a swap at each TIME; Ctrl-C ends it' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l for -d 'End after this time' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l protocol -d 'Move state in this protocol instead of the best that both implementations know' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l mount -d 'Only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand swap" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand swap" -l together -d 'All of them as one change: no request sees some old and some new, and if one cannot be swapped, none is'
complete -c refit -n "__fish_refit_using_subcommand swap" -l dry-run -d 'Change nothing: show in which protocols state could move, which one would, and how long it took to move it for a try while calls waited'
complete -c refit -n "__fish_refit_using_subcommand swap" -l without-state -d 'Leave the state of the old implementation behind, e.g. when it does not give it; only where the state is a hint, as that of a replacement policy'
complete -c refit -n "__fish_refit_using_subcommand swap" -l empty-state -d 'Throw the state away and begin with an empty one: LOSES what the object holds; only where the interface says what empty is'
complete -c refit -n "__fish_refit_using_subcommand swap" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand swap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand classes" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand classes" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand classes" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand classes" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand classes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l deadline -d 'Time that a batch of objects may take before everything is rolled back' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l rate -d 'Objects per second at the most' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l pause -d 'Hold the upgrade that is under way up: meanwhile some objects are old and some are new'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l resume -d 'Let it go on'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand upgrade" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand wrap" -l mount -d 'Only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand wrap" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand wrap" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand wrap" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand wrap" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand wrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l mount -d 'Only objects of the mount at this mountpoint' -r
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l all -d 'All wrappers'
complete -c refit -n "__fish_refit_using_subcommand unwrap" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand unwrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand load" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand load" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand load" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand load" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand load" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand plugins" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand plugins" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand plugins" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand plugins" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand plugins" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand unload" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand unload" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand unload" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand unload" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand unload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand adapt" -l every -d 'Time between two looks' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l above -d 'Swap where so much of the accesses, in percent, follow each other' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l below -d 'Swap back where less do' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l for -d 'End after this time; else at Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand adapt" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand adapt" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand adapt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand changes" -s n -l last -d 'At most this many of the latest of what is there already' -r
complete -c refit -n "__fish_refit_using_subcommand changes" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand changes" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand changes" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand changes" -s f -l follow -d 'Stay and print what comes'
complete -c refit -n "__fish_refit_using_subcommand changes" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand changes" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand probe" -s p -l pid -d 'Watch these processes' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -s e -l expression -d 'Places to watch, and actions there; several at once' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l interval -d 'Print what was counted each time this has gone by' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l for -d 'For how long; otherwise until the program ends, or Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -s o -l output -d 'Where the trace with records of events and spans goes' -r -F
complete -c refit -n "__fish_refit_using_subcommand probe" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand probe" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand probe" -s l -l list -d 'List the places that the probes name, and do nothing'
complete -c refit -n "__fish_refit_using_subcommand probe" -l lines -d 'With --list: show the file and line of source of each place, from debug information'
complete -c refit -n "__fish_refit_using_subcommand probe" -l dry-run -d 'Print what would change in the program, and do nothing'
complete -c refit -n "__fish_refit_using_subcommand probe" -l openmetrics -d 'Print what was counted as OpenMetrics text'
complete -c refit -n "__fish_refit_using_subcommand probe" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand cover" -s p -l pid -d 'Watch this process' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l module -d 'Files of the program whose path or file name matches; several at once. The program itself, unless said otherwise' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l drcov -d 'Write the blocks that were reached to this file, for Lighthouse, Ghidra and others' -r -F
complete -c refit -n "__fish_refit_using_subcommand cover" -l interval -d 'Print what was reached each time this has gone by' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l for -d 'For how long; otherwise until the program ends, or Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand cover" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand cover" -l all -d 'Watch blocks that have no room for a jump too: their functions run in copies, whose flags stay until the end'
complete -c refit -n "__fish_refit_using_subcommand cover" -l functions -d 'Report each function too'
complete -c refit -n "__fish_refit_using_subcommand cover" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand cover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand drill" -s p -l pid -d 'The process' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l for -d 'For how long each level is measured' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l depth -d 'Maximum number of levels' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l share -d 'Go on into a callee that has at least this share of the time, in percent' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l svg -d 'Draw what was found as a flame graph, to this file' -r -F
complete -c refit -n "__fish_refit_using_subcommand drill" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand drill" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand drill" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand drill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand repair" -s p -l pid -d 'The process' -r
complete -c refit -n "__fish_refit_using_subcommand repair" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand repair" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand repair" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand repair" -l verify -d 'Change nothing; say whether all its code is what its files say'
complete -c refit -n "__fish_refit_using_subcommand repair" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand repair" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand funcs" -s p -l program -d 'A process, by its number, or a program or library, by its path' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l module -d 'Only modules of the process whose path matches; a name without a slash is that of the file. The program itself, unless said otherwise' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand funcs" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand funcs" -l lines -d 'Tell the file and line of source where each begins, from debug information, and which functions were inlined into it'
complete -c refit -n "__fish_refit_using_subcommand funcs" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand funcs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand cfg" -s p -l program -d 'A process, by its number, or a program or library, by its path' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l module -d 'Only modules of the process whose path matches; a name without a slash is that of the file. The program itself, unless said otherwise' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l svg -d 'Draw it to this file' -r -F
complete -c refit -n "__fish_refit_using_subcommand cfg" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand cfg" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand cfg" -l live -d 'Say what is dead before each instruction'
complete -c refit -n "__fish_refit_using_subcommand cfg" -l lines -d 'Tell the files and lines of source that each block comes from, and the functions that were inlined there'
complete -c refit -n "__fish_refit_using_subcommand cfg" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand cfg" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand record" -s p -l pid -d 'Record this process alone: an instance, or any program for its context switches' -r
complete -c refit -n "__fish_refit_using_subcommand record" -s e -l expression -d 'Watch this in the process or command too: as for `refit probe`; counts are told as samples' -r
complete -c refit -n "__fish_refit_using_subcommand record" -s o -l output -d 'Where the trace goes' -r -F
complete -c refit -n "__fish_refit_using_subcommand record" -l mode -d 'Behavior when a buffer fills' -r -f -a "stream\t'Written as it comes; what finds no place is lost, and counted'
flight\t'The oldest is forgotten; what is there at the end is written'
dump\t'All processors stand still and write; nothing is lost, and the time is told'"
complete -c refit -n "__fish_refit_using_subcommand record" -l ring -d 'Size of each processor\'s buffer' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l rotate -d 'Begin another file once one is as large as this' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l keep -d 'Number of these files that stay; the oldest are removed' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l for -d 'For how long; otherwise until the command ends, or Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l rounds -d 'Number of runs with and without recording, for --check' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand record" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand record" -l no-switches -d 'Leave context switches out'
complete -c refit -n "__fish_refit_using_subcommand record" -l check -d 'Run the command by turns with and without recording, and tell the difference'
complete -c refit -n "__fish_refit_using_subcommand record" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand report" -l class -d 'Only this class, or this event' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l thread -d 'Only this thread' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l processor -d 'Only this processor' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l time -d 'Only what ends in this time, counted from the first record' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l limit -d 'Largest part of a time that may be taken out of it for what measuring costs, in percent' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand report" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand report" -l classes -d 'Show which classes and methods are instrumented, and what recording them cost, instead of times'
complete -c refit -n "__fish_refit_using_subcommand report" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand export" -l to -d 'Format to make of it' -r -f -a "perfetto\t'A timeline for ui.perfetto.dev and trace_processor'
folded\t'A line per stack with its time in ns, for flame graphs'
firefox\t'A profile for profiler.firefox.com'
ndjson\t'A JSON object per record and line'"
complete -c refit -n "__fish_refit_using_subcommand export" -s o -l output -d 'Where to; an existing file is replaced once everything is written' -r -F
complete -c refit -n "__fish_refit_using_subcommand export" -l class -d 'Only this class, or this event' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l thread -d 'Only this thread' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l processor -d 'Only this processor' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l time -d 'Only what ends in this time, counted from the first record' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand export" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand export" -l svg -d 'Draw a flame graph instead of writing the stacks'
complete -c refit -n "__fish_refit_using_subcommand export" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l session -d 'The session; otherwise that of the instances of this user' -r -F
complete -c refit -n "__fish_refit_using_subcommand instruments" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand instruments" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand instruments" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand instruments" -l suspend -d 'Have them record no more, in all processes'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l resume -d 'Have them record again'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l reset -d 'Have what they hold begin at zero'
complete -c refit -n "__fish_refit_using_subcommand instruments" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand instruments" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand top" -l every -d 'Interval of refreshes; longer where they would take more than a hundredth of the time' -r
complete -c refit -n "__fish_refit_using_subcommand top" -s n -l times -d 'Print so many tables as text, and end' -r
complete -c refit -n "__fish_refit_using_subcommand top" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand top" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand top" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand top" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand metrics" -s o -l output -d 'Write it to this file, which is replaced as a whole' -r -F
complete -c refit -n "__fish_refit_using_subcommand metrics" -l every -d 'Write the file again at each TIME, until Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l listen -d 'Serve it at /metrics of this address, until Ctrl-C' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand metrics" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand metrics" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand run" -l memory -d 'Limit of the anonymous memory of the program and of all that it starts, e.g. 64M; pages above it are compressed, or go to a swap file' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l on -d 'Have a kernel instance that was booted follow it, on its processors, instead of one of its own' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l roam -d 'Have its threads go to the next instance by themselves, to see whether that changes anything: again and again so often, e.g. 10ms; once; or, back for each, at every syscall' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand run" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand run" -l movable -d 'Have the program, and all that it starts, hold nothing of this kernel, so that it can be moved: no vDSO, no restartable sequences, the same addresses each time'
complete -c refit -n "__fish_refit_using_subcommand run" -l spread -d 'Have its threads run at all instances in turn, those too that it makes later, as by `refit spread`; it is told of the processors of all on this host'
complete -c refit -n "__fish_refit_using_subcommand run" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand ps" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand ps" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand ps" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand ps" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand ps" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand limit" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand limit" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand limit" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand limit" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand limit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand tend" -l memory -d 'Memory limit of its tree, in bytes' -r
complete -c refit -n "__fish_refit_using_subcommand tend" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand tend" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand tend" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand tend" -l movable -d 'Have its programs hold nothing of this kernel'
complete -c refit -n "__fish_refit_using_subcommand tend" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand tend" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand boot" -l instances -d 'Number of instances' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l cpus -d 'The processors of each, e.g. 0-3/4-7' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l number -d 'The number of the first' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l listen -d 'Where instances of other hosts can join; further instances take the ports after it' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l join -d 'An instance of another host that listens; others that it knows are joined, too' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l authority -d 'The certificate that all instances\' are signed with (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand boot" -l certificate -d 'The certificate of this host\'s instances (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand boot" -l key -d 'Its private key (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand boot" -l silence -d 'An instance of another host that has said nothing for so long counts as dead; the same for all' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l memory -d 'Memory that each owns for programs that move: for frames of those that began there, and for pages that it holds for others' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l pages -d 'Memory of the instances of one host' -r -f -a "borrow\t'Instances share it'
move\t'Pages move between them, as between hosts'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l ahead -d 'Number of pages that are moved, or of mappings that are borrowed, at once: up to 64, or `adaptive`' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l retrieval -d 'Protocol by which a program\'s instances find what is mapped at an address, until `refit swap retrieval:PID` says otherwise' -r -f -a "directory\t'Asks the instance where the program began'
all\t'Asks all instances at once'
chain\t'Asks one instance, which answers or asks the next'
group\t'Asks those that have some of its memory, at once'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l lock -d 'Protocol by which a program\'s instances agree on who changes its memory' -r -f -a "queue\t'All changes come where the program began, and are made one after the other'
lamport\t'Instances with some of its memory agree first, by Lamport\'s algorithm'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand boot" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand boot" -l insecure -d 'Do without certificates on a network where everybody is trusted'
complete -c refit -n "__fish_refit_using_subcommand boot" -l awake -d 'Keep idle processors of this host from sleeping while there are programs that have moved: calls and moves take half the time or less, at the price of power'
complete -c refit -n "__fish_refit_using_subcommand boot" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand boot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand instances" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand instances" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand instances" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand instances" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand instances" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l kill -d 'Kill the programs that run under them'
complete -c refit -n "__fish_refit_using_subcommand shutdown" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand shutdown" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand move" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand move" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand move" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand move" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand move" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand spread" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand spread" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand spread" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand spread" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand spread" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand kernel" -l listen -d 'Where instances of other hosts can join; further instances take the ports after it' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l join -d 'An instance of another host that listens; others that it knows are joined, too' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l authority -d 'The certificate that all instances\' are signed with (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand kernel" -l certificate -d 'The certificate of this host\'s instances (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand kernel" -l key -d 'Its private key (PEM)' -r -F
complete -c refit -n "__fish_refit_using_subcommand kernel" -l silence -d 'An instance of another host that has said nothing for so long counts as dead; the same for all' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l memory -d 'Memory that each owns for programs that move: for frames of those that began there, and for pages that it holds for others' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l pages -d 'Memory of the instances of one host' -r -f -a "borrow\t'Instances share it'
move\t'Pages move between them, as between hosts'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l ahead -d 'Number of pages that are moved, or of mappings that are borrowed, at once: up to 64, or `adaptive`' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l retrieval -d 'Protocol by which a program\'s instances find what is mapped at an address, until `refit swap retrieval:PID` says otherwise' -r -f -a "directory\t'Asks the instance where the program began'
all\t'Asks all instances at once'
chain\t'Asks one instance, which answers or asks the next'
group\t'Asks those that have some of its memory, at once'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l lock -d 'Protocol by which a program\'s instances agree on who changes its memory' -r -f -a "queue\t'All changes come where the program began, and are made one after the other'
lamport\t'Instances with some of its memory agree first, by Lamport\'s algorithm'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand kernel" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand kernel" -l insecure -d 'Do without certificates on a network where everybody is trusted'
complete -c refit -n "__fish_refit_using_subcommand kernel" -l awake -d 'Keep idle processors of this host from sleeping while there are programs that have moved: calls and moves take half the time or less, at the price of power'
complete -c refit -n "__fish_refit_using_subcommand kernel" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand kernel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand tour" -l time -d 'Time for which the programs work, a third of it while caches are swapped under them' -r
complete -c refit -n "__fish_refit_using_subcommand tour" -l scratch -d 'Where to put the scratch directory' -r -f -a "(__fish_complete_directories)"
complete -c refit -n "__fish_refit_using_subcommand tour" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand tour" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand tour" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand tour" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand tour" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand doctor" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand doctor" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand doctor" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand doctor" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand debug-dump" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand completions" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand completions" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand completions" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand completions" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand header" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand header" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand header" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand header" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand header" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand man" -l instance -d 'Ask only the instance with this process id; otherwise every instance of this user' -r
complete -c refit -n "__fish_refit_using_subcommand man" -l log -d 'Write events of refit\'s own to standard error: a level, and levels of modules [env: REFIT_LOG]' -r
complete -c refit -n "__fish_refit_using_subcommand man" -l log-format -d 'Format of these events; `journal` where standard error is the journal [env: REFIT_LOG_FORMAT]' -r -f -a "text\t'A line for people'
json\t'A JSON object per line'
journal\t'A line with the priority that systemd-journald reads'"
complete -c refit -n "__fish_refit_using_subcommand man" -l json -d 'Print one JSON object per line'
complete -c refit -n "__fish_refit_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "mount" -d 'Serve directories; runs until Ctrl-C, then stores everything and unmounts'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "cache" -d 'Change who caches files: the kernel too, refit alone, or whatever suits each file'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "mounts" -d 'List what is mounted'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "umount" -d 'Store everything and unmount'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "ls" -d 'List objects'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "show" -d 'Show everything that is known about an object, or a process'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "swap" -d 'Swap objects for another implementation while they are used'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "classes" -d 'List the classes of objects: what new ones are made of, and how many there are'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "upgrade" -d 'Swap all objects of a class and what new ones are made of, or nothing'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "wrap" -d 'Put code around objects that sees every call, while they are used'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "unwrap" -d 'Take such code away again'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "load" -d 'Load implementations that were built apart, so that objects can be swapped to them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "plugins" -d 'List loaded code: what it implements, how many objects it serves, the memory that it takes'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "unload" -d 'Say why loaded code stays mapped, and who uses it'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "adapt" -d 'Have caches swapped by how they are used, until Ctrl-C'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "changes" -d 'Show the journal: every change that has ended'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "probe" -d 'Watch functions and instructions of a program that runs: how often, how long, with what'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "cover" -d 'Watch which basic blocks of a program are reached, at a cost that vanishes as they are'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "drill" -d 'Measure where the time in a function goes: its callees, and on into the one that takes most'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "repair" -d 'Take out of a program what a killed refit has left'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "funcs" -d 'List functions of a program or library: where they are, how large, who knows of them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "cfg" -d 'Show the control flow of a function: basic blocks, edges, instructions, what is dead where'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "record" -d 'Record what instances, instrumented programs and the scheduler do'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "report" -d 'Show what a trace says: time by class and method, context switches, waits, losses'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "export" -d 'Make a file for another tool out of a trace'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "instruments" -d 'List what is instrumented and what that costs now; suspend and resume it'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "top" -d 'Watch objects, mounts, processors and changes, live'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "metrics" -d 'Print what instances count, as OpenMetrics text'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "run" -d 'Run a program under an instance of its own, as if there were none'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "ps" -d 'List the processes of programs that run under instances'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "limit" -d 'Limit the memory of a program that runs, and of all that it starts'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "tend" -d 'Tend a program: what `refit run` starts beside it'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "boot" -d 'Start several instances that make one system: programs move between them'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "instances" -d 'List the instances that make one system'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "shutdown" -d 'End the instances that make one system'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "move" -d 'Have a program, or one thread of it, go on at another instance'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "spread" -d 'Have the threads of a program run at all instances in turn'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "kernel" -d 'Be one of several instances: what `refit boot` starts'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "tour" -d 'Watch caches being swapped under running programs, for about a minute'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "doctor" -d 'Check what this host offers, what is missing, what that costs and how to get it'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "debug-dump" -d 'Print the last 10,000 events of instances: what they did, step by step'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "completions" -d 'Print completions for a shell'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "header" -d 'Print a C header: for threads that ask to go to another instance, or for instruments'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "man" -d 'Write man pages'
complete -c refit -n "__fish_refit_using_subcommand help; and not __fish_seen_subcommand_from mount cache mounts umount ls show swap classes upgrade wrap unwrap load plugins unload adapt changes probe cover drill repair funcs cfg record report export instruments top metrics run ps limit tend boot instances shutdown move spread kernel tour doctor debug-dump completions header man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
