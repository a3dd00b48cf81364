// SPDX-License-Identifier: GPL-2.0-only
//! What the guests' timers are for: the token is all there is to tell when one goes off.

/// What a load timer is for; packed into its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    Tick,
    Sleep,
    HostSleep,
    /// A poll or retention has lasted as long as it may.
    Idle,
    /// A VM's request reaches its disk.
    BlockSubmit,
    /// A disk's medium is done with the request at a place (the disk is in the VM's bits).
    DiskDone,
    /// A disk asked to be looked at.
    DiskLook,
    /// A request's completion reaches its VM.
    BlockDone,
    /// Packets that have left a VM are to be sent by its emulator.
    Transmit,
    /// vMigrater's monitor on a vCPU is due.
    Heartbeat,
    /// A vCPU has slept for xBalloon as long as it may.
    Balloon,
    /// A VM's threads begin.
    Begin,
    /// The network's; the rest of the token is a [`Wake`](crate::device::net::Wake).
    Net,
}

/// What the tokens of the network's timers have in common.
pub(crate) const NET_TIMER: u64 = (Timer::Net as u64) << 56;

impl Timer {
    /// All, each in the place of its number.
    const ALL: [Self; 13] = [
        Self::Tick,
        Self::Sleep,
        Self::HostSleep,
        Self::Idle,
        Self::BlockSubmit,
        Self::DiskDone,
        Self::DiskLook,
        Self::BlockDone,
        Self::Transmit,
        Self::Heartbeat,
        Self::Balloon,
        Self::Begin,
        Self::Net,
    ];

    /// Kind in the highest byte, then 24 bits for the VM and 32 for the vCPU, thread or task.
    pub fn token(self, vm: u32, index: u32) -> u64 {
        (self as u64) << 56 | u64::from(vm) << 32 | u64::from(index)
    }

    /// What it is called when a run is given up because virtual time stands still.
    pub fn name(self) -> &'static str {
        match self {
            Timer::Tick => "a tick",
            Timer::Sleep => "a sleep that ends",
            Timer::HostSleep => "a host task's sleep that ends",
            Timer::Idle => "a poll or retention that ends",
            Timer::BlockSubmit => "a request to the disk",
            Timer::DiskDone => "a disk that is done with a request",
            Timer::DiskLook => "a disk that looks for its next request",
            Timer::BlockDone => "a request's completion",
            Timer::Transmit => "packets that are sent",
            Timer::Heartbeat => "a heartbeat",
            Timer::Balloon => "a balloon's sleep that ends",
            Timer::Begin => "a thread that begins",
            Timer::Net => "packets and clients of the network",
        }
    }

    pub fn of(token: u64) -> (Timer, usize, u32) {
        let kind = Self::ALL.get((token >> 56) as usize);
        let vm = (token >> 32) & 0xff_ffff;
        (*kind.unwrap_or(&Timer::Net), vm as usize, token as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_what_it_was_made_of() {
        let (vm, index) = (0x12_3456, u32::MAX);
        for kind in Timer::ALL {
            let token = kind.token(vm, index);
            assert_eq!(Timer::of(token), (kind, vm as usize, index));
        }
        assert_eq!(Timer::of(NET_TIMER | 7).0, Timer::Net);
    }
}
