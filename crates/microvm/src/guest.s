# SPDX-License-Identifier: GPL-2.0-only
#
# The guests' programs: 64-bit, ring 0, one address space, no operating system. They are assembled
# as data of the VMM (never executed by it) and copied into the guest's memory, so they may use
# relative jumps only.
#
# On entry:  rsi  this vCPU's block, see image.rs:
#                 [rsi] iterations  [rsi+8] index  [rsi+16] work  [rsi+24] sleep in ns
#                 [rsi+32] index of the next vCPU  [rsi+40] number of vCPUs
#            rdi  the page all vCPUs share: [rdi] lock  [rdi+64] whose turn  [rdi+128] vCPUs ready
#                 [rdi+192] vCPUs at the barrier  [rdi+256] times it has opened  [rdi+320] calls answered
#            rsp  this vCPU's stack; interrupts are off and come only while halted, except for calls

    .pushsection .rodata.corun_guest, "a"

    .macro compute
        mov rcx, [rsi + 16]
7:      dec rcx
        jnz 7b
    .endm

    # Writes eax to MSR number, with zeros in the upper half.
    .macro write_msr number
        mov ecx, \number
        xor edx, edx
        wrmsr
    .endm

    # Switches the local APIC (x2APIC mode) on.
    .macro enable_apic
        mov eax, 0x1ff
        write_msr 0x80f                  # spurious-interrupt vector: enabled
    .endm

    # Switches the local APIC on and waits until all vCPUs have: an IPI to one that is still off would
    # be lost.
    .macro enable_apics
        enable_apic
        lock inc qword ptr [rdi + 128]
        mov rax, [rsi + 40]
9:      pause
        cmp [rdi + 128], rax
        jb 9b
    .endm

    # Waits for an interrupt. One that came before hlt ends it at once: sti takes effect only after it.
    .macro halt
        sti
        hlt
        cli
    .endm

    .globl corun_guest_begin, corun_guest_end, corun_guest_interrupt
    .globl corun_guest_spin, corun_guest_lock, corun_guest_timer, corun_guest_ping, corun_guest_pio
    .globl corun_guest_barrier, corun_guest_yield, corun_guest_faults, corun_guest_call
    .globl corun_guest_answer

corun_guest_begin:

# Counts for ever.
corun_guest_spin:
2:      inc qword ptr [rsi]
        jmp 2b

# Takes the shared lock, computes while it holds it, gives it back, computes as long again.
corun_guest_lock:
2:      mov eax, 1
        xchg [rdi], eax                  # locked by its nature
        test eax, eax
        jz 4f
3:      pause
        cmp dword ptr [rdi], 0
        jne 3b
        jmp 2b
4:      compute
        inc qword ptr [rsi]
        mov dword ptr [rdi], 0
        compute
        jmp 2b

# The same, but a vCPU that finds the lock taken for long asks KVM to let the next vCPU go first, as Linux does
# when it waits for a vCPU to answer an interrupt (kvm_smp_send_call_func_ipi()).
corun_guest_yield:
2:      mov eax, 1
        xchg [rdi], eax
        test eax, eax
        jz 4f
        mov ecx, 100
3:      pause
        cmp dword ptr [rdi], 0
        je 2b
        dec ecx
        jnz 3b
        mov eax, 11                      # KVM_HC_SCHED_YIELD
        mov rbx, [rsi + 32]              # to which vCPU, by the number of its local APIC
        vmmcall                          # Intel's has another one, which KVM puts in its place
        jmp 2b
4:      compute
        inc qword ptr [rsi]
        mov dword ptr [rdi], 0
        compute
        jmp 2b

# Computes, then halts until the local APIC's timer wakes it.
corun_guest_timer:
        enable_apic
        mov eax, 0xb
        write_msr 0x83e                  # divide by 1: KVM's APIC bus ticks once per ns
        mov eax, 0x40
        write_msr 0x832                  # one shot, vector 0x40
2:      inc qword ptr [rsi]
        compute
        mov eax, [rsi + 24]
        write_msr 0x838                  # initial count: the timer runs
        halt
        jmp 2b

# The vCPU whose turn it is computes, gives the turn to the next one and wakes it with an IPI; the
# others are halted.
corun_guest_ping:
        enable_apics
3:      mov rax, [rsi + 8]
        cmp [rdi + 64], rax
        je 4f
        halt
        jmp 3b
4:      inc qword ptr [rsi]
        compute
        mov rdx, [rsi + 32]
        mov [rdi + 64], rdx
        mov eax, 0x4040                  # fixed delivery, assert, vector 0x40; edx: to which vCPU
        mov ecx, 0x830
        wrmsr
        jmp 3b

# Computes, then waits until all vCPUs have: all halt but the last one, which opens the barrier and
# wakes the others by IPI.
corun_guest_barrier:
        enable_apics
3:      compute
        inc qword ptr [rsi]
        mov rbx, [rdi + 256]             # how often it had opened when this vCPU came
        mov rax, 1
        lock xadd [rdi + 192], rax
        inc rax
        cmp rax, [rsi + 40]
        je 5f
4:      cmp [rdi + 256], rbx
        jne 3b
        halt
        jmp 4b
5:      mov qword ptr [rdi + 192], 0
        inc qword ptr [rdi + 256]
        mov eax, 0xc4040                 # fixed delivery, assert, vector 0x40, to all others
        mov ecx, 0x830
        xor edx, edx
        wrmsr
        jmp 3b

# Computes, then calls all others and spins until they have answered, as Linux does to have TLBs flushed;
# one of them at a time. vCPUs that spin or compute answer calls.
corun_guest_call:
        enable_apics
        sti
2:      compute
        inc qword ptr [rsi]
3:      mov eax, 1
        xchg [rdi], eax
        test eax, eax
        jz 5f
4:      pause
        cmp dword ptr [rdi], 0
        jne 4b
        jmp 3b
5:      mov qword ptr [rdi + 320], 1     # counting itself
        mov eax, 0xc40fc                 # fixed delivery, assert, vector 0xfc, to all others
        mov ecx, 0x830
        xor edx, edx
        wrmsr
        mov rax, [rsi + 40]
6:      pause
        cmp [rdi + 320], rax
        jb 6b
        mov dword ptr [rdi], 0
        jmp 2b

# Computes, then leaves the guest for the VMM by a port write.
corun_guest_pio:
2:      inc qword ptr [rsi]
        compute
        mov dx, 0x500
        out dx, al
        jmp 2b

# An entry of 16 bytes for each exception: none of them is expected. What the processor pushed stays on the stack, with
# the number of the exception below it and 0 where there is no error code; then a port write hands over to the VMM,
# which reads it there (machine.rs).
    .balign 16
corun_guest_faults:
    .set exception, 0
    .rept 32
        .balign 16
    # Those with an error code: 8, 10 to 14, 17, 21, 29 and 30.
    .if !((0x60227d00 >> exception) & 1)
        push 0
    .endif
        push exception
        jmp 8f
    .set exception, exception + 1
    .endr
8:      out 0xf5, al
        hlt

# Every interrupt: acknowledge. It comes only while halted, where no register holds a value.
corun_guest_interrupt:
        xor eax, eax
        write_msr 0x80b                  # end of interrupt
        iretq

# A call of another vCPU: it may come anywhere.
corun_guest_answer:
        push rax
        push rcx
        push rdx
        lock inc qword ptr [rdi + 320]
        xor eax, eax
        write_msr 0x80b                  # end of interrupt
        pop rdx
        pop rcx
        pop rax
        iretq

corun_guest_end:
    .popsection
