# SPDX-License-Identifier: GPL-2.0-only
#
# Calibration's programs: 64-bit, one address space, nothing but plain instructions, so that they run in ring 3 as
# well as in ring 0. They are assembled as data of the VMM (never executed by it) and copied into the guest's
# memory, so they may use relative jumps only.
#
# On entry:  rsi  this vCPU's block, see image.rs. It holds what the vCPU reports:
#                 [rsi] work done  [rsi+8] ticks that requests waited, or the fewest a measured loop took
#                 [rsi+16] turns that are over  [rsi+24] when it last looked at the clock
#                 and what it is given:
#                 [rsi+32] a longer jump of the clock ends a turn  [rsi+40] rounds of a loop in a microsecond
#                 [rsi+48] the first element of the list  [rsi+56] table  [rsi+64] its length in bytes, less one
#                 [rsi+72] where in it to begin  [rsi+80] where lengths of turns go  [rsi+88] how many fit
#                 [rsi+96] hops, or rounds, between two looks at the clock
#            rdi  the page all vCPUs share: [rdi] next ticket  [rdi+64] ticket served  [rdi+128] stop
#            rsp  this vCPU's stack
# Kept:      r13  when this turn began  r14 when it last looked  r9 place in the table

    .pushsection .rodata.corun_native, "a"

    .set END, 0x200000
    .set DEVICE, 0x200008

    # Computes without touching memory: this many rounds.
    .macro rounds count
        mov rcx, \count
7:      dec rcx
        jnz 7b
    .endm

    # Computes this many microseconds.
    .macro spend_us count
        mov rcx, [rsi + 40]
        imul rcx, rcx, \count
8:      dec rcx
        jnz 8b
    .endm

    .macro clock
        rdtsc
        shl rdx, 32
        or rax, rdx
    .endm

    # The next number of the table.
    .macro next_of_table to
        mov rbx, [rsi + 56]
        mov \to, [rbx + r9]
        add r9, 8
        and r9, [rsi + 64]
    .endm

    .macro begin
        mov r9, [rsi + 72]
        clock
        mov r13, rax
        mov r14, rax
    .endm

    # Ends this vCPU if all is to stop.
    .macro stop_if_told
        cmp dword ptr [rdi + 128], 0
        jne corun_native_stop
    .endm

    .globl corun_native_begin, corun_native_end
    .globl corun_native_measure, corun_native_list, corun_native_pages, corun_native_spin

corun_native_begin:

# Measures its speed: the fewest ticks that a loop takes, of all tries.
corun_native_measure:
        begin
        mov qword ptr [rsi + 8], -1
2:      clock
        mov r8, rax
        rounds [rsi + 96]
        clock
        mov r14, rax
        mov [rsi + 24], rax
        sub rax, r8
        cmp rax, [rsi + 8]
        jae 3f
        mov [rsi + 8], rax
3:      inc qword ptr [rsi]
        stop_if_told
        jmp 2b

# Walks a linked list for ever.
corun_native_list:
        begin
        mov r8, [rsi + 48]
2:      mov rcx, [rsi + 96]
3:      mov r8, [r8]
        dec rcx
        jnz 3b
        mov rax, [rsi + 96]
        add [rsi], rax
        call corun_native_look
        stop_if_told
        jmp 2b

# Serves pages when they are due, and runs scripts when none is. r12: when the next one is due.
corun_native_pages:
        begin
        next_of_table r12
        add r12, r14
2:      spend_us 20
        call corun_native_look
3:      cmp r12, rax
        ja 4f
        spend_us 50
        mov dword ptr [DEVICE], eax      # the page leaves the guest
        call corun_native_look
        inc qword ptr [rsi]
        mov rdx, rax
        sub rdx, r12
        add [rsi + 8], rdx
        next_of_table rdx
        add r12, rdx
        stop_if_told                     # there may always be one that is due
        jmp 3b
4:      stop_if_told
        jmp 2b

# Computes, then a microsecond under a ticket lock that all vCPUs share. r12: its ticket.
corun_native_spin:
        begin
2:      next_of_table rcx
3:      dec rcx
        jnz 3b
        call corun_native_look
        mov r12d, 1
        lock xadd [rdi], r12
4:      cmp [rdi + 64], r12
        je 5f
        pause
        call corun_native_look
        stop_if_told                     # the one before us may have stopped
        jmp 4b
5:      spend_us 1
        lea rax, [r12 + 1]
        mov [rdi + 64], rax
        inc qword ptr [rsi]
        call corun_native_look
        stop_if_told
        jmp 2b

# Looks at the clock (to rax), and notes the length of a turn that is over.
corun_native_look:
        clock
        mov rdx, rax
        sub rdx, r14
        cmp rdx, [rsi + 32]
        jbe 3f
        mov rcx, [rsi + 16]
        cmp rcx, [rsi + 88]
        jae 2f
        mov rdx, r14
        sub rdx, r13
        mov rbx, [rsi + 80]
        mov [rbx + rcx*8], rdx
        inc qword ptr [rsi + 16]
2:      mov r13, rax
3:      mov r14, rax
        mov [rsi + 24], rax
        ret

corun_native_stop:
        mov dword ptr [END], eax
        jmp corun_native_stop

corun_native_end:
    .popsection
