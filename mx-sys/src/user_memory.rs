//! Access to the application's buffers.
//!
//! ```text
//!   post_send_list(buffers, sizes)            UserMemory
//!     +------+                             start   end
//!     | a    | 100 bytes          ---->   [ a ,   100 ]
//!     +------+                            [ c ,   350 ]   bytes 0..350, end to end
//!     | b    |   0 bytes (left out)
//!     +------+                      visit(90, 20): a[90..100], then c[0..10]
//!     | c    | 250 bytes
//!     +------+
//! ```
//!
//! Every read and write of application memory by an endpoint goes through this file. Buffers of one or two segments
//! need no allocation; the first segment is accessed without a search.
//!
//! Owns: nothing of an application's buffer; all of a [`MallocBuffer`].
//! Cost: an offset beyond the first segment is found by binary search, the pieces after it in order.

use libc::c_void;
use mx_proto::{Memory, Source};
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};
use std::slice;

/// Buffer of one posted operation.
///
/// Made by [`UserMemory::new`] and [`UserMemory::list`] from the application's pointers, or by [`UserMemory::owned`]
/// from a buffer of this library. Dropped when the operation completes; afterwards the bytes are not accessed.
pub struct UserMemory {
    /// The first segment.
    first: Segment,
    /// Length in bytes of all segments.
    len: usize,
    rest: Rest,
}

/// A piece of memory, and the offset of its end in the buffer. A segment begins at the end of the one before.
#[derive(Clone, Copy)]
struct Segment {
    /// Null only if the segment is empty.
    start: *mut u8,
    end: usize,
}

impl Segment {
    /// Returns the bytes from offset `at` on of a segment that begins at `begin`.
    #[inline(always)]
    fn from(self, begin: usize, at: usize) -> Self {
        // `at` lies in `begin .. end`, so the sum stays inside the segment; or nothing is left.
        let start = self.start.wrapping_add(at - begin);
        Self { start, ..self }
    }
}

/// The segments after the first one, none of them empty.
enum Rest {
    None,
    One(Segment),
    /// All segments, at least three, with the first one.
    List(Box<[Segment]>),
    /// No further segment: the first is all of a buffer of this library.
    Owned(MallocBuffer),
}

impl Rest {
    fn segments(&self) -> &[Segment] {
        match self {
            Self::None | Self::Owned(_) => &[],
            Self::One(segment) => slice::from_ref(segment),
            Self::List(list) => &list[1..],
        }
    }
}

/// The pieces of a part of a buffer, in order.
struct Parts<'a> {
    /// The segment that contains byte `at`, from that byte on.
    segment: Segment,
    /// The segments after it.
    rest: slice::Iter<'a, Segment>,
    at: usize,
    last: usize,
}

impl Iterator for Parts<'_> {
    /// Start of a piece, and its length, which is not 0.
    type Item = (*mut u8, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Self { at, last, .. } = *self;
        let Segment { start, end } = self.segment;
        if at >= last {
            return None;
        }
        if end >= last {
            self.at = last;
            return Some((start, last - at));
        }
        self.segment = *self.rest.next()?;
        self.at = end;
        Some((start, end - at))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(1 + self.rest.len()))
    }
}

// SAFETY: the pointers are used only through `&self` (reads) and `&mut self` (writes), and the
// caller of the constructor has promised that the memory stays valid whichever thread uses it.
unsafe impl Send for UserMemory {}

impl UserMemory {
    /// Returns an empty buffer.
    pub const fn empty() -> Self {
        Self::one(ptr::null_mut(), 0)
    }

    /// Moves the buffer out, leaving an empty one.
    #[inline(always)]
    pub fn take(&mut self) -> Self {
        let rest = mem::replace(&mut self.rest, Rest::None);
        let (first, len) = (self.first, self.len);
        (self.first.end, self.len) = (0, 0);
        Self { first, len, rest }
    }

    /// Makes a buffer of the `len` bytes at `start`, which is not null.
    ///
    /// # Safety
    ///
    /// As for [`UserMemory::new`]; `len` is at most `isize::MAX`.
    #[inline(always)]
    pub const unsafe fn of_one(start: *mut u8, len: usize) -> Self {
        Self::one(start, len)
    }

    #[inline]
    const fn one(start: *mut u8, len: usize) -> Self {
        Self {
            first: Segment { start, end: len },
            len,
            rest: Rest::None,
        }
    }

    /// Makes a buffer of the `len` bytes at `start`, which may be null if `len` is 0.
    ///
    /// # Safety
    ///
    /// Until the value is dropped, which happens when its operation completes, the bytes must be readable for a send,
    /// and writable and not used otherwise for a receive.
    #[inline]
    pub unsafe fn new(start: *mut c_void, len: usize) -> Result<Self, SegmentError> {
        let end = end_of(0, start, len, 0)?;
        Ok(Self::one(start.cast(), end))
    }

    /// Makes a buffer of several pieces, end to end in the order given. Empty ones are left out and may be null.
    ///
    /// # Safety
    ///
    /// As for [`UserMemory::new`], for each piece.
    pub unsafe fn list<I>(pieces: I) -> Result<Self, SegmentError>
    where
        I: IntoIterator<Item = (*mut c_void, usize)>,
    {
        let pieces = pieces.into_iter();
        let (mut end, mut odd) = (0_usize, 0);
        let mut segments = SmallVec::<[Segment; 2]>::with_capacity(pieces.size_hint().0);
        segments.extend(pieces.map(|(start, len)| {
            end = end.wrapping_add(len);
            // The highest bit is set by a length beyond `isize::MAX`, a null pointer or an empty piece; `tidy` then
            // checks each piece.
            odd |= len | end | len.wrapping_sub(1) | start.addr().wrapping_sub(1);
            let start = start.cast();
            Segment { start, end }
        }));
        if odd.cast_signed() < 0 {
            tidy(&mut segments)?;
        }
        let (first, rest) = match segments[..] {
            [] => return Ok(Self::empty()),
            [first] => (first, Rest::None),
            [first, second] => (first, Rest::One(second)),
            [first, ..] => (first, Rest::List(segments.into_boxed_slice())),
        };
        let len = end;
        Ok(Self { first, len, rest })
    }

    /// Returns whether the buffer is `total` bytes long.
    #[inline]
    pub fn adds_up_to(&self, total: i64) -> bool {
        self.len as i64 == total
    }

    /// Wraps a buffer of this library. The buffer is freed when the value is dropped, unless [`UserMemory::into_owned`]
    /// takes it out.
    pub fn owned(buffer: MallocBuffer) -> Self {
        let (start, len) = (buffer.start.as_ptr(), buffer.len);
        Self {
            rest: Rest::Owned(buffer),
            ..Self::one(start, len)
        }
    }

    /// Returns the library's buffer; `None` if the bytes are an application's.
    pub fn into_owned(self) -> Option<MallocBuffer> {
        match self.rest {
            Rest::Owned(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Returns the end of `offset .. offset + len`, limited to the buffer.
    #[inline(always)]
    fn last(&self, offset: usize, len: usize) -> usize {
        offset.saturating_add(len).min(self.len)
    }

    /// Iterates over the pieces of `len` bytes from `offset` on.
    #[inline(always)]
    fn parts(&self, offset: usize, len: usize) -> Parts<'_> {
        let last = self.last(offset, len);
        if offset >= self.first.end && offset < last {
            return self.parts_of_rest(offset, last);
        }
        Parts {
            segment: self.first.from(0, offset),
            rest: self.rest.segments().iter(),
            at: offset,
            last,
        }
    }

    /// Iterates over the pieces from byte `at` on, which is not in the first segment.
    #[inline(never)]
    fn parts_of_rest(&self, at: usize, last: usize) -> Parts<'_> {
        let all = self.rest.segments();
        let index = all.partition_point(|segment| segment.end <= at);
        let begin = if index == 0 {
            self.first.end
        } else {
            all[index - 1].end
        };
        Parts {
            segment: all[index].from(begin, at),
            rest: all[index + 1..].iter(),
            at,
            last,
        }
    }
}

/// Checks the pieces of a list, and removes empty ones.
#[cold]
fn tidy(segments: &mut SmallVec<[Segment; 2]>) -> Result<(), SegmentError> {
    let mut begin = 0;
    for (index, segment) in segments.iter().enumerate() {
        let len = segment.end.wrapping_sub(begin);
        begin = end_of(index, segment.start.cast(), len, begin)?;
    }
    let mut begin = 0;
    segments.retain(|segment| mem::replace(&mut begin, segment.end) != segment.end);
    Ok(())
}

/// Returns the end of a piece of `len` bytes at `start` that begins at offset `begin`.
#[inline]
fn end_of(
    index: usize,
    start: *mut c_void,
    len: usize,
    begin: usize,
) -> Result<usize, SegmentError> {
    if start.is_null() && len > 0 {
        return Err(SegmentError::Null { index, len });
    }
    // `isize::MAX` is the maximum length of a slice.
    match begin.checked_add(len) {
        Some(end) if end <= isize::MAX as usize => Ok(end),
        _ => Err(SegmentError::TooLong { index }),
    }
}

impl Memory for UserMemory {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    /// Splits an application's memory, which is valid until its region is deregistered; by then all parts have been
    /// dropped. Returns `None` for a buffer of this library.
    fn part(&self, offset: usize, len: usize) -> Option<Self> {
        if matches!(self.rest, Rest::Owned(_)) {
            return None;
        }
        let pieces = self.parts(offset, len);
        let pieces = pieces.map(|(start, len)| (start.cast(), len));
        // SAFETY: the pieces lie within those for which the owner made the same promise.
        unsafe { Self::list(pieces) }.ok()
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        matches!(self.rest, Rest::None)
    }

    #[inline(always)]
    fn piece(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let last = self.last(offset, len);
        if offset >= last || last > self.first.end {
            return None;
        }
        let start = self.first.start.wrapping_add(offset);
        // SAFETY: as in `visit`, of the first segment.
        Some(unsafe { slice::from_raw_parts(start, last - offset) })
    }

    #[inline(always)]
    fn piece_mut(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let last = self.last(offset, len);
        if offset >= last || last > self.first.end {
            return None;
        }
        let start = self.first.start.wrapping_add(offset);
        // SAFETY: as in `visit_rest_mut`, of the first segment.
        Some(unsafe { slice::from_raw_parts_mut(start, last - offset) })
    }

    #[inline]
    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8])) {
        self.pieces(offset, len).for_each(visitor);
    }

    #[inline(always)]
    fn visit_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        match self.piece_mut(offset, len) {
            Some(piece) => visitor(piece),
            None => self.visit_rest_mut(offset, len, visitor),
        }
    }

    #[inline]
    fn pieces(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        self.parts(offset, len).map(|(start, len)| {
            // SAFETY: a non-empty part of a segment whose owner promised (`new`, `list`) that it
            // stays readable until this value is dropped, or part of our own buffer.
            unsafe { slice::from_raw_parts(start, len) }
        })
    }

    #[inline]
    fn cells(&mut self, offset: usize, len: usize) -> impl Iterator<Item = &[Cell<u8>]> {
        self.parts(offset, len).map(|(start, len)| {
            // SAFETY: as in `pieces`, and for a receive the owner promised that the bytes are not used
            // otherwise. Cells may overlap, as segments may.
            unsafe { slice::from_raw_parts(start.cast(), len) }
        })
    }
}

/// Bytes that are not all in the first segment.
impl UserMemory {
    #[inline(never)]
    fn visit_rest_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        for (start, len) in self.parts(offset, len) {
            // SAFETY: as in `pieces`, and for a receive the owner promised that the bytes are not used
            // otherwise. One slice is lent at a time, so segments that overlap do no harm here.
            visitor(unsafe { slice::from_raw_parts_mut(start, len) });
        }
    }
}

impl fmt::Debug for UserMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "UserMemory({} bytes in {} segments)",
            self.len,
            1 + self.rest.segments().len()
        )
    }
}

/// Reasons why pieces cannot form a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// A piece of `len` bytes is at the null pointer.
    Null {
        /// Index of the piece, from 0.
        index: usize,
        /// Length as given.
        len: usize,
    },
    /// The lengths up to this piece add up to more than `isize::MAX`.
    TooLong {
        /// Index of the piece, from 0.
        index: usize,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null { index, len } => write!(f, "segment {index} of {len} bytes is null"),
            Self::TooLong { index } => write!(f, "segment {index} makes the buffer too long"),
        }
    }
}

impl std::error::Error for SegmentError {}

/// A buffer from the C library's `malloc`, of an exact size, which C hosts may free.
pub struct MallocBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns its bytes, and `free` may be called from any thread.
unsafe impl Send for MallocBuffer {}

impl MallocBuffer {
    /// Allocates `len` bytes with the alignment of `malloc` and unspecified contents. `None` without memory. An empty
    /// buffer has a unique pointer, too.
    pub fn new(len: usize) -> Option<Self> {
        // SAFETY: malloc may be called with any size; a size of 1 gives a pointer where 0 need not.
        let start = unsafe { libc::malloc(len.max(1)) };
        NonNull::new(start.cast()).map(|start| Self { start, len })
    }

    /// Allocates a buffer and copies a received message body into it. `None` without memory.
    pub fn copy_of<S: Source + ?Sized>(source: &S) -> Option<Self> {
        let mut buffer = Self::new(source.len())?;
        source.copy_to(0, buffer.bytes_mut());
        Some(buffer)
    }

    /// Returns the length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes, to be written; their contents before that are unspecified.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: ours alone and `len` bytes long. The bytes may be uninitialised, like any buffer of a C program; the
        // code behind `Memory` and `Source` only writes to what it is lent.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Releases the pointer, which the caller has to `free`.
    pub fn into_raw(self) -> *mut c_void {
        let start = self.start.as_ptr().cast();
        let _ = mem::ManuallyDrop::new(self);
        start
    }
}

impl Drop for MallocBuffer {
    fn drop(&mut self) {
        // SAFETY: the pointer came from malloc and has not been given away by `into_raw`.
        unsafe { libc::free(self.start.as_ptr().cast()) };
    }
}

impl fmt::Debug for MallocBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MallocBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(pieces: &mut [Vec<u8>]) -> UserMemory {
        // SAFETY: the tests keep the vectors alive, and unused while the value is.
        unsafe { UserMemory::list(pieces.iter_mut().map(|p| (p.as_mut_ptr().cast(), p.len()))) }
            .unwrap()
    }

    fn read(memory: &UserMemory, offset: usize, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        memory.visit(offset, len, |piece| {
            assert!(!piece.is_empty());
            out.extend_from_slice(piece);
        });
        out
    }

    #[test]
    fn every_window_of_a_list_reads_as_the_joined_bytes() {
        let mut pieces: Vec<Vec<u8>> = vec![
            b"abc".to_vec(),
            vec![],
            b"d".to_vec(),
            b"efgh".to_vec(),
            vec![],
            vec![],
        ];
        let mut memory = list_of(&mut pieces);
        let whole = b"abcdefgh";
        assert_eq!(memory.len(), 8);
        for offset in 0..=10 {
            for len in 0..=10 {
                let from = offset.min(8);
                let to = (offset + len).min(8);
                assert_eq!(
                    read(&memory, offset, len),
                    &whole[from..to],
                    "{offset}+{len}"
                );
                let cells = memory.cells(offset, len).flatten().map(Cell::get);
                assert!(
                    cells.eq(whole[from..to.max(from)].iter().copied()),
                    "{offset}+{len}"
                );
            }
        }
        assert_eq!(read(&memory, 2, usize::MAX), b"cdefgh");
    }

    #[test]
    fn filling_a_list_crosses_segments_and_stays_inside() {
        let mut pieces = vec![vec![0u8; 2], vec![0u8; 3], vec![0u8; 1]];
        let mut memory = list_of(&mut pieces);
        assert_eq!(memory.fill(1, 100, &b"0123456789"[..], 2), 5);
        drop(memory);
        assert_eq!(pieces, [b"\x002".to_vec(), b"345".to_vec(), b"6".to_vec()]);
    }

    #[test]
    fn null_is_legal_exactly_when_the_length_is_zero() {
        // SAFETY: no bytes are named, or the call is rejected.
        unsafe {
            assert_eq!(UserMemory::new(ptr::null_mut(), 0).unwrap().len(), 0);
            assert_eq!(
                UserMemory::new(ptr::null_mut(), 7).unwrap_err(),
                SegmentError::Null { index: 0, len: 7 }
            );
            let mut byte = 1u8;
            let good = (&raw mut byte).cast();
            let list = UserMemory::list([(ptr::null_mut(), 0), (good, 1)]).unwrap();
            assert_eq!(read(&list, 0, 9), [1]);
            assert_eq!(
                UserMemory::list([(good, 1), (ptr::null_mut(), 2)]).unwrap_err(),
                SegmentError::Null { index: 1, len: 2 }
            );
        }
        assert_eq!(read(&UserMemory::empty(), 0, 9), b"");
    }

    #[test]
    fn lengths_that_overflow_are_refused_and_name_the_segment() {
        let mut byte = 0u8;
        let p: *mut c_void = (&raw mut byte).cast();
        let most = isize::MAX as usize;
        // SAFETY: the values are never read through.
        unsafe {
            assert_eq!(UserMemory::new(p, most).unwrap().len(), most);
            assert_eq!(
                UserMemory::new(p, most + 1).unwrap_err(),
                SegmentError::TooLong { index: 0 }
            );
            assert_eq!(
                UserMemory::list([(p, most), (p, 1)]).unwrap_err(),
                SegmentError::TooLong { index: 1 }
            );
            assert_eq!(
                UserMemory::list([(p, 1), (p, usize::MAX)]).unwrap_err(),
                SegmentError::TooLong { index: 1 }
            );
        }
    }

    #[test]
    fn bytes_written_to_a_library_buffer_are_returned() {
        let mut memory = UserMemory::owned(MallocBuffer::new(5).unwrap());
        assert_eq!(memory.fill(0, 5, &b"hello"[..], 0), 5);
        assert_eq!(read(&memory, 0, 9), b"hello");
        let mut buffer = memory.into_owned().unwrap();
        assert_eq!(buffer.bytes_mut(), b"hello");
        let raw = buffer.into_raw();
        assert_eq!(raw as usize % align_of::<libc::max_align_t>(), 0);
        // SAFETY: into_raw gave the pointer to us.
        unsafe { libc::free(raw) };
        assert!(UserMemory::empty().into_owned().is_none());
    }

    #[test]
    fn a_buffer_of_no_bytes_still_has_a_pointer_to_free() {
        let buffer = MallocBuffer::copy_of(&b""[..]).unwrap();
        assert!(buffer.is_empty());
        let raw = buffer.into_raw();
        assert!(!raw.is_null());
        // SAFETY: into_raw gave the pointer to us.
        unsafe { libc::free(raw) };
    }
}
