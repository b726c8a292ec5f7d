//! The tables of operations, as 2.x has them.
//!
//! ```text
//!   every table:   size | operation | operation | ...  | operation | operation
//!                   |                                  ^ 1.9 ends     ^ 2.x ends
//!                   `- says where this provider's ends; a member beyond it is not there
//! ```
//!
//! Owns: the signature and place of every operation. Tables have only ever grown at the end. They
//! are called in the crate's `calls`.

use libc::{c_char, c_int, c_void, iovec};

use super::attributes::{fi_av_attr, fi_cq_attr, fi_mr_attr};
use super::constants::{fi_addr_t, fi_collective_op, fi_datatype, fi_op};
use super::info::{fi_info, fi_rx_attr, fi_tx_attr};
use super::messages::{fi_cq_err_entry, fi_msg, fi_msg_rma, fi_msg_tagged};
use super::objects::{
    fi_atomic_attr, fi_av_set_attr, fi_cntr_attr, fi_collective_attr, fi_eq_attr, fi_poll_attr,
    fi_wait_attr, fi_xpu_attr, fid, fid_av, fid_av_set, fid_cntr, fid_cq, fid_domain, fid_ep,
    fid_eq, fid_fabric, fid_mc, fid_mr, fid_pep, fid_poll, fid_stx, fid_wait, fid_xpu_cq,
    fid_xpu_ctx, fid_xpu_ep,
};

c_tables! {
    /// Operations of every object.
    pub struct fi_ops {
        /// Ends the object.
        close(fid: *mut fid) -> c_int,
        /// Joins it to another.
        bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int,
        /// Commands: `FI_ENABLE`, `FI_GETWAIT`, ...
        control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int,
        /// A provider's own operations.
        ops_open(
            fid: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
        /// A description of it.
        tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int,
        /// Replaces a provider's own operations.
        ops_set(
            fid: *mut fid, name: *const c_char, flags: u64, ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    }

    /// Operations of a fabric.
    pub struct fi_ops_fabric {
        /// Opens a domain.
        domain(
            fabric: *mut fid_fabric, info: *mut fi_info, dom: *mut *mut fid_domain,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a passive endpoint.
        passive_ep(
            fabric: *mut fid_fabric, info: *mut fi_info, pep: *mut *mut fid_pep,
            context: *mut c_void,
        ) -> c_int,
        /// Opens an event queue.
        eq_open(
            fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a wait set.
        wait_open(
            fabric: *mut fid_fabric, attr: *mut fi_wait_attr, waitset: *mut *mut fid_wait,
        ) -> c_int,
        /// Whether one may sleep on these objects' descriptors.
        trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int,
        /// Opens a domain, with flags.
        domain2(
            fabric: *mut fid_fabric, info: *mut fi_info, dom: *mut *mut fid_domain, flags: u64,
            context: *mut c_void,
        ) -> c_int,
    }

    /// Operations of a domain.
    pub struct fi_ops_domain {
        /// Opens an address vector.
        av_open(
            domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a completion queue.
        cq_open(
            domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq,
            context: *mut c_void,
        ) -> c_int,
        /// Opens an endpoint.
        endpoint(
            domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a scalable endpoint.
        scalable_ep(
            domain: *mut fid_domain, info: *mut fi_info, sep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a counter.
        cntr_open(
            domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a poll set.
        poll_open(
            domain: *mut fid_domain, attr: *mut fi_poll_attr, pollset: *mut *mut fid_poll,
        ) -> c_int,
        /// Opens a shared transmit context.
        stx_ctx(
            domain: *mut fid_domain, attr: *mut fi_tx_attr, stx: *mut *mut fid_stx,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a shared receive context.
        srx_ctx(
            domain: *mut fid_domain, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        /// Asks about an atomic operation.
        query_atomic(
            domain: *mut fid_domain, datatype: fi_datatype, op: fi_op,
            attr: *mut fi_atomic_attr, flags: u64,
        ) -> c_int,
        /// Asks about a collective operation.
        query_collective(
            domain: *mut fid_domain, coll: fi_collective_op, attr: *mut fi_collective_attr,
            flags: u64,
        ) -> c_int,
        /// Opens an endpoint, with flags.
        endpoint2(
            domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, flags: u64,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a context on an accelerator.
        [later] xpu_ctx(
            domain: *mut fid_domain, attr: *mut fi_xpu_attr, ctx: *mut *mut fid_xpu_ctx,
            context: *mut c_void,
        ) -> c_int,
    }

    /// Registrations. The first argument is the domain's `fid`.
    pub struct fi_ops_mr {
        /// One segment.
        reg(
            fid: *mut fid, buf: *const c_void, len: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int,
        /// Several segments.
        regv(
            fid: *mut fid, iov: *const iovec, count: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int,
        /// As the attributes say.
        regattr(
            fid: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr,
        ) -> c_int,
    }

    /// Operations of an endpoint.
    pub struct fi_ops_ep {
        /// Asks for an operation to be given up, named by its context.
        cancel(fid: *mut fid, context: *mut c_void) -> isize,
        /// Reads an option.
        getopt(
            fid: *mut fid, level: c_int, optname: c_int, optval: *mut c_void,
            optlen: *mut usize,
        ) -> c_int,
        /// Sets an option.
        setopt(
            fid: *mut fid, level: c_int, optname: c_int, optval: *const c_void, optlen: usize,
        ) -> c_int,
        /// Opens a transmit context.
        tx_ctx(
            sep: *mut fid_ep, index: c_int, attr: *mut fi_tx_attr, tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        /// Opens a receive context.
        rx_ctx(
            sep: *mut fid_ep, index: c_int, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        /// Receives that can still be posted; no longer in use.
        rx_size_left(ep: *mut fid_ep) -> isize,
        /// Sends that can still be posted; no longer in use.
        tx_size_left(ep: *mut fid_ep) -> isize,
        /// Gives it to an accelerator.
        [later] export_xpu(ep: *mut fid_ep, flags: u64, xpu_ep: *mut fid_xpu_ep) -> c_int,
    }

    /// Names and connections.
    pub struct fi_ops_cm {
        /// Chooses the endpoint's address.
        setname(fid: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int,
        /// The endpoint's address.
        getname(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        /// The address of the connected peer.
        getpeer(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        /// Connects.
        connect(
            ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize,
        ) -> c_int,
        /// Listens.
        listen(pep: *mut fid_pep) -> c_int,
        /// Takes a connection.
        accept(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int,
        /// Refuses one.
        reject(
            pep: *mut fid_pep, handle: *mut fid, param: *const c_void, paramlen: usize,
        ) -> c_int,
        /// Ends one.
        shutdown(ep: *mut fid_ep, flags: u64) -> c_int,
        /// Joins a multicast group.
        join(
            ep: *mut fid_ep, addr: *const c_void, flags: u64, mc: *mut *mut fid_mc,
            context: *mut c_void,
        ) -> c_int,
    }

    /// Messages.
    pub struct fi_ops_msg {
        /// Posts one buffer.
        recv(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void,
            src_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        /// Posts several segments.
        recvv(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        /// Posts, with flags.
        recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
        /// Sends one buffer.
        send(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        /// Sends several segments.
        sendv(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        /// Sends, with flags.
        sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize,
        /// Sends a copy, without a completion.
        inject(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t,
        ) -> isize,
        /// Sends one buffer and immediate data.
        senddata(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, context: *mut c_void,
        ) -> isize,
        /// Sends a copy and immediate data, without a completion.
        injectdata(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
        ) -> isize,
    }

    /// Tagged messages.
    pub struct fi_ops_tagged {
        /// Posts one buffer.
        recv(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void,
            src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize,
        /// Posts several segments.
        recvv(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize,
        /// Posts, with flags; also looks, claims and discards.
        recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
        /// Sends one buffer.
        send(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void,
        ) -> isize,
        /// Sends several segments.
        sendv(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void,
        ) -> isize,
        /// Sends, with flags.
        sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
        /// Sends a copy, without a completion.
        inject(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64,
        ) -> isize,
        /// Sends one buffer and immediate data.
        senddata(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void,
        ) -> isize,
        /// Sends a copy and immediate data, without a completion.
        injectdata(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
            tag: u64,
        ) -> isize,
    }

    /// Remote memory.
    pub struct fi_ops_rma {
        /// Reads into one buffer.
        read(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void,
            src_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        /// Reads into several segments.
        readv(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        /// Reads, with flags.
        readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
        /// Writes one buffer.
        write(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        /// Writes several segments.
        writev(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        /// Writes, with flags.
        writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
        /// Writes a copy, without a completion.
        inject(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, addr: u64,
            key: u64,
        ) -> isize,
        /// Writes one buffer and immediate data.
        writedata(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        /// Writes a copy and immediate data, without a completion.
        injectdata(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
            addr: u64, key: u64,
        ) -> isize,
    }

    /// Operations of a completion queue.
    pub struct fi_ops_cq {
        /// Takes completions out.
        read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize,
        /// Takes completions out, with their senders.
        readfrom(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
        ) -> isize,
        /// Takes the failed one out, after `-FI_EAVAIL`.
        readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize,
        /// Waits for completions and takes them out.
        sread(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void,
            timeout: c_int,
        ) -> isize,
        /// Waits for completions and takes them out, with their senders.
        sreadfrom(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
            cond: *const c_void, timeout: c_int,
        ) -> isize,
        /// Wakes the waiters.
        signal(cq: *mut fid_cq) -> c_int,
        /// The provider's words for its error.
        strerror(
            cq: *mut fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
        /// Gives it to an accelerator.
        [later] export_xpu(cq: *mut fid_cq, flags: u64, xpu_cq: *mut fid_xpu_cq) -> c_int,
    }

    /// Operations of an address vector.
    pub struct fi_ops_av {
        /// Adds addresses.
        insert(
            av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t,
            flags: u64, context: *mut c_void,
        ) -> c_int,
        /// Adds an address by name.
        insertsvc(
            av: *mut fid_av, node: *const c_char, service: *const c_char,
            fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void,
        ) -> c_int,
        /// Adds a range of addresses by name.
        insertsym(
            av: *mut fid_av, node: *const c_char, nodecnt: usize, service: *const c_char,
            svccnt: usize, fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void,
        ) -> c_int,
        /// Takes addresses out.
        remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int,
        /// The address behind a `fi_addr_t`.
        lookup(
            av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize,
        ) -> c_int,
        /// An address, to be read by people.
        straddr(
            av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize,
        ) -> *const c_char,
        /// Opens a set of addresses.
        av_set(
            av: *mut fid_av, attr: *mut fi_av_set_attr, av_set: *mut *mut fid_av_set,
            context: *mut c_void,
        ) -> c_int,
        /// Adds a key.
        [later] insert_auth_key(
            av: *mut fid_av, auth_key: *const c_void, auth_key_size: usize,
            fi_addr: *mut fi_addr_t, flags: u64,
        ) -> c_int,
        /// The key behind a `fi_addr_t`.
        [later] lookup_auth_key(
            av: *mut fid_av, fi_addr: fi_addr_t, auth_key: *mut c_void,
            auth_key_size: *mut usize,
        ) -> c_int,
        /// Chooses the source address that completions report.
        [later] set_user_id(
            av: *mut fid_av, fi_addr: fi_addr_t, user_id: fi_addr_t, flags: u64,
        ) -> c_int,
        /// The address behind a `fi_addr_t`, for an accelerator.
        [later] lookup2(
            av: *mut fid_av, fi_addr: fi_addr_t, buf: *mut c_void, len: *mut usize, flags: u64,
            ctx: *mut fid_xpu_ctx,
        ) -> c_int,
    }
}
