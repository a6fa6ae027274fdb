; What a C program calls of a package: an instance is opened, its functions are run, it is closed.
;
; An instance is one block of memory, laid out when the package was built:
;    0 threads   4 workers that have been started
;   64 for each thread, the first unused: its handle, its team, its number
;   TEAM_AT the team, as team.ll has it; then programs, tables of pointers, status words, parameters, temporaries
; Words that are not 0 at first: three numbers each, the place, the base, and what is added to that. Bases: 0 nothing, 1 the
; instance, 2 constants, then functions.
;
;   function   0 its program   8 arguments   16 bindings   24 how many   32 status words   40 how many   48 for each: its first message
;   binding    0 place in the instance   8 argument   16 bytes that are added

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @memset(ptr, i32, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare void @nf_team_run(ptr, ptr, i32)
declare void @nf_team_worker(ptr)
declare void @nf_team_end(ptr)

define ptr @NAME_open(i32 %wanted) {
entry:
  %m = call ptr @aligned_alloc(i64 4096, i64 INSTANCE_BYTES)
  %none = icmp eq ptr %m, null
  br i1 %none, label %fail, label %clear
fail:
  ret ptr null
clear:
  %cleared = call ptr @memset(ptr %m, i32 0, i64 CLEARED_BYTES)
  br label %words
words:
  %i = phi i64 [ 0, %clear ], [ %i1, %word ]
  %more = icmp ult i64 %i, WORD_COUNT
  br i1 %more, label %word, label %threads
word:
  %row = mul i64 %i, 3
  %place.at = getelementptr i64, ptr @words, i64 %row
  %base.at = getelementptr i64, ptr %place.at, i64 1
  %added.at = getelementptr i64, ptr %place.at, i64 2
  %place = load i64, ptr %place.at
  %base = load i64, ptr %base.at
  %added = load i64, ptr %added.at
  %given.at = getelementptr ptr, ptr @bases, i64 %base
  %given = load ptr, ptr %given.at
  %is.own = icmp eq i64 %base, 1
  %from = select i1 %is.own, ptr %m, ptr %given
  %address = ptrtoint ptr %from to i64
  %value = add i64 %address, %added
  %to = getelementptr i8, ptr %m, i64 %place
  store i64 %value, ptr %to
  %i1 = add i64 %i, 1
  br label %words
threads:
  %some = icmp sgt i32 %wanted, 0
  %few = icmp slt i32 %wanted, THREADS
  %fits = and i1 %some, %few
  %n = select i1 %fits, i32 %wanted, i32 THREADS
  store i32 %n, ptr %m
  %started.at = getelementptr i8, ptr %m, i64 4
  %team = getelementptr i8, ptr %m, i64 TEAM_AT
  br label %next
next:
  %t = phi i32 [ 1, %threads ], [ %t1, %started ]
  %left = icmp slt i32 %t, %n
  br i1 %left, label %start, label %out
start:
  %t64 = zext i32 %t to i64
  %line = mul i64 %t64, 24
  %handle.off = add i64 %line, 64
  %handle.at = getelementptr i8, ptr %m, i64 %handle.off
  %worker = getelementptr i8, ptr %handle.at, i64 8
  %number.at = getelementptr i8, ptr %handle.at, i64 16
  store ptr %team, ptr %worker
  store i64 %t64, ptr %number.at
  %r = call i32 @pthread_create(ptr %handle.at, ptr null, ptr @nf_team_worker, ptr %worker)
  %made = icmp eq i32 %r, 0
  br i1 %made, label %started, label %out
started:
  store i32 %t, ptr %started.at
  %t1 = add i32 %t, 1
  br label %next
out:
  ret ptr %m
}

define void @NAME_close(ptr %m) {
entry:
  %none = icmp eq ptr %m, null
  br i1 %none, label %out, label %end
end:
  %team = getelementptr i8, ptr %m, i64 TEAM_AT
  call void @nf_team_end(ptr %team)
  %started.at = getelementptr i8, ptr %m, i64 4
  %n = load i32, ptr %started.at
  br label %next
next:
  %t = phi i32 [ 1, %end ], [ %t1, %join ]
  %left = icmp sle i32 %t, %n
  br i1 %left, label %join, label %free
join:
  %t64 = zext i32 %t to i64
  %line = mul i64 %t64, 24
  %handle.off = add i64 %line, 64
  %handle.at = getelementptr i8, ptr %m, i64 %handle.off
  %handle = load i64, ptr %handle.at
  %r = call i32 @pthread_join(i64 %handle, ptr null)
  %t1 = add i32 %t, 1
  br label %next
free:
  call void @free(ptr %m)
  br label %out
out:
  ret void
}

; Run a function on these arguments: 0, or the number of a message.
define internal i32 @run_function(ptr %m, ptr %function, ptr %arguments) {
entry:
  %arguments.at = getelementptr i8, ptr %function, i64 8
  %bindings.at = getelementptr i8, ptr %function, i64 16
  %bound.at = getelementptr i8, ptr %function, i64 24
  %status.at = getelementptr i8, ptr %function, i64 32
  %failing.at = getelementptr i8, ptr %function, i64 40
  %first.at = getelementptr i8, ptr %function, i64 48
  %program.off = load i64, ptr %function
  %count = load i64, ptr %arguments.at
  %bindings = load ptr, ptr %bindings.at
  %bound = load i64, ptr %bound.at
  %status.off = load i64, ptr %status.at
  %failing = load i64, ptr %failing.at
  %first = load ptr, ptr %first.at
  %status = getelementptr i8, ptr %m, i64 %status.off
  br label %check
check:
  %a = phi i64 [ 0, %entry ], [ %a1, %fine ]
  %unchecked = icmp ult i64 %a, %count
  br i1 %unchecked, label %look, label %bind
look:
  %given.at = getelementptr ptr, ptr %arguments, i64 %a
  %given = load ptr, ptr %given.at
  %bits = ptrtoint ptr %given to i64
  %null = icmp eq i64 %bits, 0
  br i1 %null, label %is.null, label %aligned
aligned:
  %low = and i64 %bits, 63
  %odd = icmp ne i64 %low, 0
  br i1 %odd, label %is.odd, label %fine
fine:
  %a1 = add i64 %a, 1
  br label %check
is.null:
  ret i32 1
is.odd:
  ret i32 2
bind:
  %b = phi i64 [ 0, %check ], [ %b1, %point ]
  %unbound = icmp ult i64 %b, %bound
  br i1 %unbound, label %point, label %clear
point:
  %row = mul i64 %b, 3
  %place.at = getelementptr i64, ptr %bindings, i64 %row
  %which.at = getelementptr i64, ptr %place.at, i64 1
  %added.at = getelementptr i64, ptr %place.at, i64 2
  %place = load i64, ptr %place.at
  %which = load i64, ptr %which.at
  %added = load i64, ptr %added.at
  %array.at = getelementptr ptr, ptr %arguments, i64 %which
  %array = load ptr, ptr %array.at
  %inside = getelementptr i8, ptr %array, i64 %added
  %to = getelementptr i8, ptr %m, i64 %place
  store ptr %inside, ptr %to
  %b1 = add i64 %b, 1
  br label %bind
clear:
  %status.bytes = mul i64 %failing, 4
  %cleared = call ptr @memset(ptr %status, i32 0, i64 %status.bytes)
  %team = getelementptr i8, ptr %m, i64 TEAM_AT
  %program = getelementptr i8, ptr %m, i64 %program.off
  %threads = load i32, ptr %m
  call void @nf_team_run(ptr %team, ptr %program, i32 %threads)
  br label %judge
judge:
  %s = phi i64 [ 0, %clear ], [ %s1, %good ]
  %unjudged = icmp ult i64 %s, %failing
  br i1 %unjudged, label %word, label %done
word:
  %word.at = getelementptr i32, ptr %status, i64 %s
  %word.is = load i32, ptr %word.at
  %bad = icmp ne i32 %word.is, 0
  br i1 %bad, label %tell, label %good
good:
  %s1 = add i64 %s, 1
  br label %judge
tell:
  %message.at = getelementptr i32, ptr %first, i64 %s
  %message = load i32, ptr %message.at
  %number = add i32 %message, %word.is
  ret i32 %number
done:
  ret i32 0
}

; The memory of a parameter.
define ptr @NAME_parameter(ptr %m, i32 %number) {
entry:
  %known = icmp ult i32 %number, PARAMETER_COUNT
  br i1 %known, label %find, label %none
none:
  ret ptr null
find:
  %n = zext i32 %number to i64
  %place.at = getelementptr i64, ptr @places, i64 %n
  %place = load i64, ptr %place.at
  %p = getelementptr i8, ptr %m, i64 %place
  ret ptr %p
}

; What a file of parameters begins with.
define ptr @NAME_head() {
  ret ptr @head
}

; What a number that a function has returned says.
define ptr @NAME_message(i32 %number) {
entry:
  %known = icmp ult i32 %number, MESSAGE_COUNT
  %n = select i1 %known, i32 %number, i32 0
  %n64 = zext i32 %n to i64
  %text.at = getelementptr ptr, ptr @messages, i64 %n64
  %text = load ptr, ptr %text.at
  ret ptr %text
}

!llvm.module.flags = !{!0}
!0 = !{i32 4, !"tvm_target", !"{\22kind\22:\22llvm\22,\22mcpu\22:\22x86-64\22,\22opt-level\22:2}"}
