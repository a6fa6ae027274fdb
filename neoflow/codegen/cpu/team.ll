; The thread team: all of a compiled program in one call, by threads that go through it together.
;
; A program is a sequence of regions. A parallel region is one phase of a kernel, or of several that need nothing of each
; other, their tasks in pieces; each thread has a range of the pieces, takes them one by one, then those that others have not begun, and waits until all are done: for the
; pieces, not for the threads, so that a thread which the system has set aside, and which has begun none, delays nobody.
; A serial region is a run of phases that the calling thread does alone.
;
; Regions are numbered through the life of the team. What changes carries the number of its region in its upper 48 bits, so
; that nothing is set back between two regions, and a thread that comes late finds numbers above its own and passes on.
; Who waits spins for a while, then sleeps (futex); between two steps it first goes on looking whenever nobody else wants
; the core.
;
;   team       0 generation: odd while a step runs    8 program   16 number of its first region    24 threads   28 stop
;             32 whether the team is taken   40 number of the next step's first region   48 threads asleep between steps
;             64 done: number << 16 | pieces done    128 threads asleep inside a step              132 the event they wait for
;            256 + 64 t   claimed by others or itself from thread t's range: number << 16 | pieces
;            264 + 64 t   the generation that thread t is inside of, or 0
;   program    0 regions      8 how many           16 where the times go, or null: one at the start, one at each region's end
;             24 the generation of its last run by the team, or 0     32 how often it has run to its end
;   region     0 phases       8 how many           12 pieces (0: serial)   16 status word, or null; a step ends where it is not 0
;   phase      0 function     8 pointers           16 tasks            20 pieces, where its region is parallel

declare i64 @syscall(i64, ...)
declare i64 @llvm.readcyclecounter()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @sleep_on(ptr %word, i32 %seen) {
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  ret void
}

define internal void @wake_all(ptr %word) {
  %r = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}

; Lets whoever else wants the core have it.
define internal void @step_back() {
  %r = call i64 (i64, ...) @syscall(i64 24)
  ret void
}

; Whether `pieces` of region `number` are done, by the word `done`.
define internal i1 @is_done(i64 %done, i64 %number, i64 %pieces) {
  %at = lshr i64 %done, 16
  %count = and i64 %done, 65535
  %later = icmp ugt i64 %at, %number
  %here = icmp eq i64 %at, %number
  %all = icmp eq i64 %count, %pieces
  %now = and i1 %here, %all
  %r = or i1 %later, %now
  ret i1 %r
}

define internal void @wait_done(ptr %team, i64 %number, i64 %pieces) {
entry:
  %done.at = getelementptr i8, ptr %team, i64 64
  %asleep.at = getelementptr i8, ptr %team, i64 128
  %event.at = getelementptr i8, ptr %team, i64 132
  br label %begin
begin:
  %start = call i64 @llvm.readcyclecounter()
  br label %spin
spin:
  %d = load atomic i64, ptr %done.at acquire, align 8
  %ready = call i1 @is_done(i64 %d, i64 %number, i64 %pieces)
  br i1 %ready, label %out, label %again
again:
  call void asm sideeffect "pause", ""()
  %now = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %now, %start
  %long = icmp ugt i64 %spent, SPIN_CYCLES
  br i1 %long, label %tired, label %spin
tired:
  %n = atomicrmw add ptr %asleep.at, i32 1 seq_cst
  %event = load atomic i32, ptr %event.at seq_cst, align 4
  %d2 = load atomic i64, ptr %done.at seq_cst, align 8
  %ready2 = call i1 @is_done(i64 %d2, i64 %number, i64 %pieces)
  br i1 %ready2, label %awake, label %rest
rest:
  call void @sleep_on(ptr %event.at, i32 %event)
  br label %awake
awake:
  %m = atomicrmw sub ptr %asleep.at, i32 1 seq_cst
  br label %begin
out:
  ret void
}

; To be called by the thread that has completed a region.
define internal void @announce(ptr %team) {
entry:
  %asleep.at = getelementptr i8, ptr %team, i64 128
  %event.at = getelementptr i8, ptr %team, i64 132
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %out, label %wake
wake:
  %e = atomicrmw add ptr %event.at, i32 1 seq_cst
  call void @wake_all(ptr %event.at)
  br label %out
out:
  ret void
}

; Tasks begin to end of a phase.
define internal void @run_tasks(ptr %phase, i32 %thread, i32 %begin, i32 %end) {
  %function = load ptr, ptr %phase
  %pointers.at = getelementptr i8, ptr %phase, i64 8
  %pointers = load ptr, ptr %pointers.at
  call void %function(ptr %pointers, i32 %thread, i32 %begin, i32 %end)
  ret void
}

; All phases of a region, alone.
define internal void @run_phases(ptr %region) {
entry:
  %first = load ptr, ptr %region
  %count.at = getelementptr i8, ptr %region, i64 8
  %count = load i32, ptr %count.at
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i32 %i, %count
  br i1 %more, label %body, label %out
body:
  %i64 = zext i32 %i to i64
  %offset = mul i64 %i64, 24
  %phase = getelementptr i8, ptr %first, i64 %offset
  %tasks.at = getelementptr i8, ptr %phase, i64 16
  %tasks = load i32, ptr %tasks.at
  call void @run_tasks(ptr %phase, i32 0, i32 0, i32 %tasks)
  %next = add i32 %i, 1
  br label %loop
out:
  ret void
}

; Whether a region has failed.
define internal i1 @has_failed(ptr %region) {
entry:
  %status.at.at = getelementptr i8, ptr %region, i64 16
  %status.at = load ptr, ptr %status.at.at
  %none = icmp eq ptr %status.at, null
  br i1 %none, label %out, label %look
look:
  %status = load atomic i32, ptr %status.at monotonic, align 4
  %bad = icmp ne i32 %status, 0
  br label %out
out:
  %r = phi i1 [ false, %entry ], [ %bad, %look ]
  ret i1 %r
}

; A program has run to its end.
define internal void @note_end(ptr %program) {
  %runs.at = getelementptr i8, ptr %program, i64 32
  %runs = load i64, ptr %runs.at
  %more = add i64 %runs, 1
  store i64 %more, ptr %runs.at
  ret void
}

define internal void @note_time(ptr %times, i64 %number) {
entry:
  %none = icmp eq ptr %times, null
  br i1 %none, label %out, label %note
note:
  %now = call i64 @llvm.readcyclecounter()
  %at = getelementptr i64, ptr %times, i64 %number
  store i64 %now, ptr %at
  br label %out
out:
  ret void
}

; A thread's share of a parallel region: pieces of its own range, then of the others'. Gives how many it has done.
define internal i64 @run_pieces(ptr %team, ptr %region, i64 %number, i64 %pieces, i32 %threads, i32 %thread) {
entry:
  %first = load ptr, ptr %region
  %n = zext i32 %threads to i64
  %own = zext i32 %thread to i64
  br label %victim
victim:
  %hop = phi i64 [ 0, %entry ], [ %hop.next, %nextvictim ]
  %mine.v = phi i64 [ 0, %entry ], [ %mine, %nextvictim ]
  %finished = icmp eq i64 %hop, %n
  br i1 %finished, label %out, label %ranges
ranges:
  %sum = add i64 %own, %hop
  %v = urem i64 %sum, %n
  %v1 = add i64 %v, 1
  %low.p = mul i64 %v, %pieces
  %high.p = mul i64 %v1, %pieces
  %low = udiv i64 %low.p, %n
  %high = udiv i64 %high.p, %n
  %length = sub i64 %high, %low
  %line = mul i64 %v, 64
  %claim.off = add i64 %line, 256
  %claim.at = getelementptr i8, ptr %team, i64 %claim.off
  br label %claim
claim:
  %mine = phi i64 [ %mine.v, %ranges ], [ %mine, %lost ], [ %mine.more, %found ]
  %word = load atomic i64, ptr %claim.at acquire, align 8
  %at = lshr i64 %word, 16
  %late = icmp ugt i64 %at, %number
  br i1 %late, label %out.late, label %intime
intime:
  %same = icmp eq i64 %at, %number
  %low16 = and i64 %word, 65535
  %taken = select i1 %same, i64 %low16, i64 0
  %left = icmp ult i64 %taken, %length
  br i1 %left, label %try, label %nextvictim
try:
  %taken1 = add i64 %taken, 1
  %tag = shl i64 %number, 16
  %new = or i64 %tag, %taken1
  %pair = cmpxchg ptr %claim.at, i64 %word, i64 %new acq_rel monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %take, label %lost
lost:
  br label %claim
take:
  %place = add i64 %low, %taken
  br label %find
find:
  %phase = phi ptr [ %first, %take ], [ %phase.next, %further ]
  %p = phi i64 [ %place, %take ], [ %p.next, %further ]
  %cut.at = getelementptr i8, ptr %phase, i64 20
  %cut32 = load i32, ptr %cut.at
  %cut = zext i32 %cut32 to i64
  %here = icmp ult i64 %p, %cut
  br i1 %here, label %found, label %further
further:
  %p.next = sub i64 %p, %cut
  %phase.next = getelementptr i8, ptr %phase, i64 24
  br label %find
found:
  %tasks.at = getelementptr i8, ptr %phase, i64 16
  %tasks32 = load i32, ptr %tasks.at
  %tasks = zext i32 %tasks32 to i64
  %p1 = add i64 %p, 1
  %begin.p = mul i64 %p, %tasks
  %end.p = mul i64 %p1, %tasks
  %begin64 = udiv i64 %begin.p, %cut
  %end64 = udiv i64 %end.p, %cut
  %begin = trunc i64 %begin64 to i32
  %end = trunc i64 %end64 to i32
  call void @run_tasks(ptr %phase, i32 %thread, i32 %begin, i32 %end)
  %mine.more = add i64 %mine, 1
  br label %claim
nextvictim:
  %hop.next = add i64 %hop, 1
  br label %victim
out.late:
  br label %out
out:
  %r = phi i64 [ %mine.v, %victim ], [ %mine, %out.late ]
  ret i64 %r
}

; Adds to the pieces of a region that are done; the thread that completes it says so.
define internal void @add_done(ptr %team, i64 %number, i64 %pieces, i64 %mine) {
entry:
  %none = icmp eq i64 %mine, 0
  br i1 %none, label %out, label %begin
begin:
  %done.at = getelementptr i8, ptr %team, i64 64
  br label %loop
loop:
  %word = load atomic i64, ptr %done.at monotonic, align 8
  %at = lshr i64 %word, 16
  %same = icmp eq i64 %at, %number
  %low16 = and i64 %word, 65535
  %before = select i1 %same, i64 %low16, i64 0
  %after = add i64 %before, %mine
  %tag = shl i64 %number, 16
  %new = or i64 %tag, %after
  %pair = cmpxchg ptr %done.at, i64 %word, i64 %new seq_cst monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %added, label %loop
added:
  %all = icmp eq i64 %after, %pieces
  br i1 %all, label %complete, label %out
complete:
  call void @announce(ptr %team)
  br label %out
out:
  ret void
}

; One thread's way through a program.
define internal void @go_through(ptr %team, ptr %program, i64 %base, i32 %threads, i32 %thread) {
entry:
  %regions = load ptr, ptr %program
  %count.at = getelementptr i8, ptr %program, i64 8
  %count = load i64, ptr %count.at
  %times.at = getelementptr i8, ptr %program, i64 16
  %times = load ptr, ptr %times.at
  %is.first = icmp eq i32 %thread, 0
  %done.at = getelementptr i8, ptr %team, i64 64
  br i1 %is.first, label %clock, label %ready
clock:
  call void @note_time(ptr %times, i64 0)
  br label %ready
ready:
  br label %loop
loop:
  %r = phi i64 [ 0, %ready ], [ %next, %continue ]
  %more = icmp ult i64 %r, %count
  br i1 %more, label %body, label %ended
body:
  %number = add i64 %base, %r
  %offset = mul i64 %r, 24
  %region = getelementptr i8, ptr %regions, i64 %offset
  %pieces.at = getelementptr i8, ptr %region, i64 12
  %pieces32 = load i32, ptr %pieces.at
  %pieces = zext i32 %pieces32 to i64
  %serial = icmp eq i32 %pieces32, 0
  br i1 %serial, label %one, label %all
one:
  br i1 %is.first, label %alone, label %wait
alone:
  call void @run_phases(ptr %region)
  %tag = shl i64 %number, 16
  %old = atomicrmw xchg ptr %done.at, i64 %tag seq_cst
  call void @announce(ptr %team)
  br label %check
all:
  %mine = call i64 @run_pieces(ptr %team, ptr %region, i64 %number, i64 %pieces, i32 %threads, i32 %thread)
  call void @add_done(ptr %team, i64 %number, i64 %pieces, i64 %mine)
  br label %wait
wait:
  call void @wait_done(ptr %team, i64 %number, i64 %pieces)
  br label %check
check:
  %failed = call i1 @has_failed(ptr %region)
  br i1 %failed, label %out, label %on
on:
  br i1 %is.first, label %time, label %continue
time:
  %r1 = add i64 %r, 1
  call void @note_time(ptr %times, i64 %r1)
  br label %continue
continue:
  %next = add i64 %r, 1
  br label %loop
ended:
  br i1 %is.first, label %count.it, label %out
count.it:
  call void @note_end(ptr %program)
  br label %out
out:
  ret void
}

; A step of the whole team, by the thread that becomes number 0.
define internal void @team_step(ptr %team, ptr %program, i32 %threads) {
entry:
  %program.at = getelementptr i8, ptr %team, i64 8
  %base.at = getelementptr i8, ptr %team, i64 16
  %threads.at = getelementptr i8, ptr %team, i64 24
  %next.at = getelementptr i8, ptr %team, i64 40
  %asleep.at = getelementptr i8, ptr %team, i64 48
  %count.at = getelementptr i8, ptr %program, i64 8
  %count = load i64, ptr %count.at
  %base = load i64, ptr %next.at
  %after = add i64 %base, %count
  store i64 %after, ptr %next.at
  store atomic ptr %program, ptr %program.at monotonic, align 8
  store atomic i64 %base, ptr %base.at monotonic, align 8
  store atomic i32 %threads, ptr %threads.at monotonic, align 4
  %g = atomicrmw add ptr %team, i64 1 seq_cst
  %running = add i64 %g, 1
  %last.at = getelementptr i8, ptr %program, i64 24
  store i64 %running, ptr %last.at
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %go, label %wake
wake:
  call void @wake_all(ptr %team)
  br label %go
go:
  call void @go_through(ptr %team, ptr %program, i64 %base, i32 %threads, i32 0)
  %h = atomicrmw add ptr %team, i64 1 seq_cst
  ret void
}

; A step by the calling thread alone.
define internal void @team_alone(ptr %program) {
entry:
  %regions = load ptr, ptr %program
  %count.at = getelementptr i8, ptr %program, i64 8
  %count = load i64, ptr %count.at
  %times.at = getelementptr i8, ptr %program, i64 16
  %times = load ptr, ptr %times.at
  call void @note_time(ptr %times, i64 0)
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %next, %on ]
  %more = icmp ult i64 %r, %count
  br i1 %more, label %body, label %ended
body:
  %offset = mul i64 %r, 24
  %region = getelementptr i8, ptr %regions, i64 %offset
  call void @run_phases(ptr %region)
  %failed = call i1 @has_failed(ptr %region)
  br i1 %failed, label %out, label %on
on:
  %next = add i64 %r, 1
  call void @note_time(ptr %times, i64 %next)
  br label %loop
ended:
  call void @note_end(ptr %program)
  br label %out
out:
  ret void
}

; A step: by the whole team, or by the calling thread alone where one is enough or the team is taken. One call, so that
; no exception of Python comes between what it takes, does and gives back.
define void @team_run(ptr %team, ptr %program, i32 %threads) {
entry:
  %several = icmp ugt i32 %threads, 1
  br i1 %several, label %ask, label %alone
ask:
  %taken.at = getelementptr i8, ptr %team, i64 32
  %pair = cmpxchg ptr %taken.at, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %together, label %alone
together:
  call void @team_step(ptr %team, ptr %program, i32 %threads)
  store atomic i32 0, ptr %taken.at release, align 4
  ret void
alone:
  call void @team_alone(ptr %program)
  ret void
}

; The life of a worker; `worker` is its team and its number. Signals are for the threads of Python: it takes none, but for
; the two that the C library sends to threads itself (32 and 33).
define void @team_worker(ptr %worker) {
entry:
  %signals = alloca i64
  store i64 -6442450945, ptr %signals
  %masked = call i64 (i64, ...) @syscall(i64 14, i32 0, ptr %signals, ptr null, i64 8)
  %team = load ptr, ptr %worker
  %thread.at = getelementptr i8, ptr %worker, i64 8
  %thread = load i32, ptr %thread.at
  %program.at = getelementptr i8, ptr %team, i64 8
  %base.at = getelementptr i8, ptr %team, i64 16
  %threads.at = getelementptr i8, ptr %team, i64 24
  %stop.at = getelementptr i8, ptr %team, i64 28
  %asleep.at = getelementptr i8, ptr %team, i64 48
  %t64 = zext i32 %thread to i64
  %line = mul i64 %t64, 64
  %inside.off = add i64 %line, 264
  %inside.at = getelementptr i8, ptr %team, i64 %inside.off
  br label %begin
begin:
  %seen = phi i64 [ 0, %entry ], [ %seen, %awake ], [ %g, %leave ], [ %g, %absent ]
  %start = call i64 @llvm.readcyclecounter()
  br label %spin
spin:
  %g = load atomic i64, ptr %team acquire, align 8
  %stop = load atomic i32, ptr %stop.at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %look
look:
  %odd = and i64 %g, 1
  %running = icmp ne i64 %odd, 0
  %fresh = icmp ne i64 %g, %seen
  %new = and i1 %running, %fresh
  br i1 %new, label %enter, label %again
again:
  call void asm sideeffect "pause", ""()
  %now = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %now, %start
  %long = icmp ugt i64 %spent, SPIN_CYCLES
  br i1 %long, label %polite, label %spin
polite:
  call void @step_back()
  %longer = icmp ugt i64 %spent, YIELD_CYCLES
  br i1 %longer, label %tired, label %spin
tired:
  %n = atomicrmw add ptr %asleep.at, i32 1 seq_cst
  %g2 = load atomic i64, ptr %team seq_cst, align 8
  %stop2 = load atomic i32, ptr %stop.at seq_cst, align 4
  %stopped2 = icmp ne i32 %stop2, 0
  %odd2 = and i64 %g2, 1
  %running2 = icmp ne i64 %odd2, 0
  %fresh2 = icmp ne i64 %g2, %seen
  %new2 = and i1 %running2, %fresh2
  %up = or i1 %new2, %stopped2
  br i1 %up, label %awake, label %rest
rest:
  %word = trunc i64 %g2 to i32
  call void @sleep_on(ptr %team, i32 %word)
  br label %awake
awake:
  %m = atomicrmw sub ptr %asleep.at, i32 1 seq_cst
  br label %begin
enter:
  ; What it reads belongs to generation g only if that still runs after it has said that it is inside.
  %i = atomicrmw xchg ptr %inside.at, i64 %g seq_cst
  %program = load atomic ptr, ptr %program.at monotonic, align 8
  %base = load atomic i64, ptr %base.at monotonic, align 8
  %threads = load atomic i32, ptr %threads.at monotonic, align 4
  fence seq_cst
  %g3 = load atomic i64, ptr %team seq_cst, align 8
  %still = icmp eq i64 %g3, %g
  %wanted = icmp ult i32 %thread, %threads
  %in = and i1 %still, %wanted
  br i1 %in, label %work, label %absent
absent:
  store atomic i64 0, ptr %inside.at release, align 8
  br label %begin
work:
  call void @go_through(ptr %team, ptr %program, i64 %base, i32 %threads, i32 %thread)
  br label %leave
leave:
  store atomic i64 0, ptr %inside.at release, align 8
  br label %begin
out:
  ret void
}

; The workers of a team leave, none being in a step. The generation changes, so that one which is about to sleep does not.
define void @team_end(ptr %team) {
  %stop.at = getelementptr i8, ptr %team, i64 28
  store atomic i32 1, ptr %stop.at seq_cst, align 4
  %g = atomicrmw add ptr %team, i64 2 seq_cst
  call void @wake_all(ptr %team)
  ret void
}

; A kernel that copies: pointers are the source, the target, their bytes, and the bytes of a task.
define void @team_copy(ptr %pointers, i32 %thread, i32 %begin, i32 %end) {
  %source = load ptr, ptr %pointers
  %target.at = getelementptr i8, ptr %pointers, i64 8
  %target = load ptr, ptr %target.at
  %bytes.at = getelementptr i8, ptr %pointers, i64 16
  %bytes = load i64, ptr %bytes.at
  %grain.at = getelementptr i8, ptr %pointers, i64 24
  %grain = load i64, ptr %grain.at
  %begin64 = zext i32 %begin to i64
  %end64 = zext i32 %end to i64
  %low = mul i64 %begin64, %grain
  %high = mul i64 %end64, %grain
  %over = icmp ugt i64 %high, %bytes
  %last = select i1 %over, i64 %bytes, i64 %high
  %length = sub i64 %last, %low
  %a = getelementptr i8, ptr %source, i64 %low
  %b = getelementptr i8, ptr %target, i64 %low
  call void @llvm.memcpy.p0.p0.i64(ptr %b, ptr %a, i64 %length, i1 false)
  ret void
}

; A kernel that is a loop: its tasks are the turns, and in each it runs phases over words of its own. What it is given are
; numbers of 8 bytes:
;   0 phases   1 movings   2 words   then of each phase: function, its first word, tasks
;   then of each moving: a word, bytes, period, ahead: in turn n the word is bytes * ((n + ahead) % period) beyond itself
;   then the words: pointers of kernels, and what loops inside are given
define void @team_loop(ptr %given, i32 %thread, i32 %begin, i32 %end) {
entry:
  %phases = load i64, ptr %given
  %movings.at = getelementptr i64, ptr %given, i64 1
  %movings = load i64, ptr %movings.at
  %count.at = getelementptr i64, ptr %given, i64 2
  %count = load i64, ptr %count.at
  %phase.at = getelementptr i64, ptr %given, i64 3
  %phase.words = mul i64 %phases, 3
  %moving.at = getelementptr i64, ptr %phase.at, i64 %phase.words
  %moving.words = mul i64 %movings, 4
  %first = getelementptr i64, ptr %moving.at, i64 %moving.words
  %words = alloca i64, i64 %count, align 16
  %places = alloca i64, i64 %movings, align 16
  %bytes = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %first, i64 %bytes, i1 false)
  %begin64 = zext i32 %begin to i64
  br label %start
start:
  %i = phi i64 [ 0, %entry ], [ %i.next, %start.one ]
  %start.more = icmp ult i64 %i, %movings
  br i1 %start.more, label %start.one, label %turns
start.one:
  %i.words = mul i64 %i, 4
  %i.at = getelementptr i64, ptr %moving.at, i64 %i.words
  %i.period.at = getelementptr i64, ptr %i.at, i64 2
  %i.period = load i64, ptr %i.period.at
  %i.ahead.at = getelementptr i64, ptr %i.at, i64 3
  %i.ahead = load i64, ptr %i.ahead.at
  %i.turn = add i64 %begin64, %i.ahead
  %i.place = urem i64 %i.turn, %i.period
  %i.place.at = getelementptr i64, ptr %places, i64 %i
  store i64 %i.place, ptr %i.place.at
  %i.next = add i64 %i, 1
  br label %start
turns:
  %turn = phi i32 [ %begin, %start ], [ %turn.next, %run.end ]
  %turn.more = icmp ult i32 %turn, %end
  br i1 %turn.more, label %move, label %out
move:
  %m = phi i64 [ 0, %turns ], [ %m.next, %move.one ]
  %move.more = icmp ult i64 %m, %movings
  br i1 %move.more, label %move.one, label %run
move.one:
  %m.words = mul i64 %m, 4
  %m.at = getelementptr i64, ptr %moving.at, i64 %m.words
  %word = load i64, ptr %m.at
  %step.at = getelementptr i64, ptr %m.at, i64 1
  %step = load i64, ptr %step.at
  %period.at = getelementptr i64, ptr %m.at, i64 2
  %period = load i64, ptr %period.at
  %place.at = getelementptr i64, ptr %places, i64 %m
  %place = load i64, ptr %place.at
  %further = mul i64 %step, %place
  %base.at = getelementptr i64, ptr %first, i64 %word
  %base = load i64, ptr %base.at
  %address = add i64 %base, %further
  %word.at = getelementptr i64, ptr %words, i64 %word
  store i64 %address, ptr %word.at
  %place.up = add i64 %place, 1
  %around = icmp eq i64 %place.up, %period
  %place.next = select i1 %around, i64 0, i64 %place.up
  store i64 %place.next, ptr %place.at
  %m.next = add i64 %m, 1
  br label %move
run:
  %k = phi i64 [ 0, %move ], [ %k.next, %run.one ]
  %run.more = icmp ult i64 %k, %phases
  br i1 %run.more, label %run.one, label %run.end
run.one:
  %k.words = mul i64 %k, 3
  %k.at = getelementptr i64, ptr %phase.at, i64 %k.words
  %function = load ptr, ptr %k.at
  %own.at = getelementptr i64, ptr %k.at, i64 1
  %own = load i64, ptr %own.at
  %tasks.at = getelementptr i64, ptr %k.at, i64 2
  %tasks64 = load i64, ptr %tasks.at
  %tasks = trunc i64 %tasks64 to i32
  %pointers = getelementptr i64, ptr %words, i64 %own
  call void %function(ptr %pointers, i32 %thread, i32 0, i32 %tasks)
  %k.next = add i64 %k, 1
  br label %run
run.end:
  %turn.next = add i32 %turn, 1
  br label %turns
out:
  ret void
}

; A number that two threads pass to and fro, so often: each waits for its turn, all second ones from `turn` on, and writes
; the next. Who waits for long leaves.
define void @team_echo(ptr %word, i64 %turn, i64 %rounds) {
entry:
  br label %round
round:
  %n = phi i64 [ 0, %entry ], [ %n1, %answer ]
  %more = icmp ult i64 %n, %rounds
  br i1 %more, label %begin, label %out
begin:
  %two = shl i64 %n, 1
  %wanted = add i64 %two, %turn
  %start = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %now = load atomic i64, ptr %word acquire, align 8
  %mine = icmp eq i64 %now, %wanted
  br i1 %mine, label %answer, label %again
again:
  %t = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %t, %start
  %long = icmp ugt i64 %spent, ECHO_CYCLES
  br i1 %long, label %out, label %look
answer:
  %next = add i64 %wanted, 1
  store atomic i64 %next, ptr %word release, align 8
  %n1 = add i64 %n, 1
  br label %round
out:
  ret void
}
