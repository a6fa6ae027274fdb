; What a C program calls of a package for a GPU: an instance is opened, its functions are run, it is closed.
;
; All that is done there are calls of the driver, and those are tables: lists of commands, made when the package was built.
; An instance is one block of words on the host; what lies on the GPU it knows by the driver's numbers:
;    0 nothing, 0   8 the instance   16 the library's data   24 why it could not be opened, a message's number
;   64 the arguments of the C function that is called; then functions, the driver's handles, pointers of kernels, status words
;
;   command    0 place of its function   8 place of a word: where that is 0, the command is passed over
;              16 what its failing means: a message's number; 0: the driver's words; -1: nothing   24 how many arguments
;              32 for each: place of a word, what is added to that
;   list       0 its commands   8 how many
;   function   0 its list   8 arguments   16 place of its status words   24 how many   32 for each: its first message
;
; All arguments go as 64 bits, and eleven of them, as many as cuLaunchKernel has: in the calling convention of x86-64 Linux a
; function finds its own among them, whole or their lower half.

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @memset(ptr, i32, i64)
declare ptr @dlopen(ptr, i32)
declare ptr @dlsym(ptr, ptr)

%list = type { ptr, i64 }

define ptr @NAME_open(i32 %ordinal) {
entry:
  %m = call ptr @aligned_alloc(i64 64, i64 INSTANCE_BYTES)
  %none = icmp eq ptr %m, null
  br i1 %none, label %out, label %begin
begin:
  %cleared = call ptr @memset(ptr %m, i32 0, i64 INSTANCE_BYTES)
  %own.at = getelementptr i8, ptr %m, i64 8
  store ptr %m, ptr %own.at
  %data.at = getelementptr i8, ptr %m, i64 16
  store ptr @data, ptr %data.at
  %failed.at = getelementptr i8, ptr %m, i64 24
  %ordinal.at = getelementptr i8, ptr %m, i64 64
  %ordinal64 = sext i32 %ordinal to i64
  store i64 %ordinal64, ptr %ordinal.at
  %functions = getelementptr i8, ptr %m, i64 FUNCTIONS_AT
  store ptr @is_other, ptr %functions
  %fill.at = getelementptr ptr, ptr %functions, i64 1
  store ptr @fill, ptr %fill.at
  %driver = call ptr @dlopen(ptr @driver_file, i32 2)
  %absent = icmp eq ptr %driver, null
  br i1 %absent, label %fail, label %functions.next
functions.next:
  %n = phi i64 [ 2, %begin ], [ %n1, %found ]
  %more = icmp ult i64 %n, FUNCTION_COUNT
  br i1 %more, label %find, label %run
find:
  %name.at = getelementptr ptr, ptr @function_names, i64 %n
  %name = load ptr, ptr %name.at
  %function = call ptr @dlsym(ptr %driver, ptr %name)
  %lacks = icmp eq ptr %function, null
  br i1 %lacks, label %fail, label %found
found:
  %function.at = getelementptr ptr, ptr %functions, i64 %n
  store ptr %function, ptr %function.at
  %n1 = add i64 %n, 1
  br label %functions.next
run:
  %r = call i32 @run_commands(ptr %m, ptr @opening)
  br label %fail
fail:
  %why = phi i32 [ NO_DRIVER, %begin ], [ OLD_DRIVER, %find ], [ %r, %run ]
  store i32 %why, ptr %failed.at
  br label %out
out:
  ret ptr %m
}

define void @NAME_close(ptr %m) {
entry:
  %none = icmp eq ptr %m, null
  br i1 %none, label %out, label %end
end:
  %r = call i32 @run_commands(ptr %m, ptr @closing)
  call void @free(ptr %m)
  br label %out
out:
  ret void
}

; Do the commands of a list up to the first that fails: 0, or what its failing means, less than 0 where the driver says it.
define internal i32 @run_commands(ptr %m, ptr %list) {
entry:
  %given = alloca [11 x i64]
  store [11 x i64] zeroinitializer, ptr %given
  %commands = load ptr, ptr %list
  %count.at = getelementptr %list, ptr %list, i64 0, i32 1
  %count = load i64, ptr %count.at
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %over ]
  %command = phi ptr [ %commands, %entry ], [ %after, %over ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %read, label %done
read:
  %needs.off = getelementptr i64, ptr %command, i64 1
  %meaning.at = getelementptr i64, ptr %command, i64 2
  %arguments.at = getelementptr i64, ptr %command, i64 3
  %first = getelementptr i64, ptr %command, i64 4
  %arguments = load i64, ptr %arguments.at
  %words = shl i64 %arguments, 1
  %after = getelementptr i64, ptr %first, i64 %words
  %n1 = add i64 %n, 1
  %needs = load i64, ptr %needs.off
  %needs.at = getelementptr i8, ptr %m, i64 %needs
  %needed = load i64, ptr %needs.at
  %there = icmp ne i64 %needed, 0
  br i1 %there, label %gather, label %over
gather:
  %a = phi i64 [ 0, %read ], [ %a1, %argument ]
  %missing = icmp ult i64 %a, %arguments
  br i1 %missing, label %argument, label %call
argument:
  %pair = shl i64 %a, 1
  %place.at = getelementptr i64, ptr %first, i64 %pair
  %added.at = getelementptr i64, ptr %place.at, i64 1
  %place = load i64, ptr %place.at
  %added = load i64, ptr %added.at
  %word.at = getelementptr i8, ptr %m, i64 %place
  %word = load i64, ptr %word.at
  %value = add i64 %word, %added
  %given.at = getelementptr i64, ptr %given, i64 %a
  store i64 %value, ptr %given.at
  %a1 = add i64 %a, 1
  br label %gather
call:
  %function.off = load i64, ptr %command
  %function.at = getelementptr i8, ptr %m, i64 %function.off
  %function = load ptr, ptr %function.at
CALL
  %failed = icmp ne i32 %r, 0
  br i1 %failed, label %judge, label %over
judge:
  %meaning = load i64, ptr %meaning.at
  %passed = icmp slt i64 %meaning, 0
  br i1 %passed, label %over, label %fail
fail:
  %is.own = icmp ne i64 %meaning, 0
  %own = trunc i64 %meaning to i32
  %of.driver = sub i32 0, %r
  %result = select i1 %is.own, i32 %own, i32 %of.driver
  ret i32 %result
over:
  br label %next
done:
  ret i32 0
}

; Whether a GPU of this capability takes no code that runs from `least` on to before `most`, numbers like 90.
define internal i32 @is_other(i64 %major, i64 %minor, i64 %least, i64 %most) {
entry:
  %tens = mul i64 %major, 10
  %here = add i64 %tens, %minor
  %old = icmp ult i64 %here, %least
  %new = icmp uge i64 %here, %most
  %other = or i1 %old, %new
  %r = zext i1 %other to i32
  ret i32 %r
}

; So many words from one place to another, with something added to each.
define internal i32 @fill(ptr %to, ptr %from, i64 %count, i64 %added) {
entry:
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %word ]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %word, label %done
word:
  %from.at = getelementptr i64, ptr %from, i64 %n
  %value = load i64, ptr %from.at
  %sum = add i64 %value, %added
  %to.at = getelementptr i64, ptr %to, i64 %n
  store i64 %sum, ptr %to.at
  %n1 = add i64 %n, 1
  br label %next
done:
  ret i32 0
}

; Run a function on these arguments: 0, or the number of a message.
define internal i32 @run_function(ptr %m, ptr %function, ptr %arguments) {
entry:
  %failed.at = getelementptr i8, ptr %m, i64 24
  %closed = load i32, ptr %failed.at
  %open = icmp eq i32 %closed, 0
  br i1 %open, label %begin, label %is.closed
is.closed:
  ret i32 %closed
begin:
  %arguments.at = getelementptr i64, ptr %function, i64 1
  %status.off = getelementptr i64, ptr %function, i64 2
  %failing.at = getelementptr i64, ptr %function, i64 3
  %first = getelementptr i64, ptr %function, i64 4
  %list = load ptr, ptr %function
  %count = load i64, ptr %arguments.at
  %status.place = load i64, ptr %status.off
  %failing = load i64, ptr %failing.at
  br label %check
check:
  %a = phi i64 [ 0, %begin ], [ %a1, %fine ]
  %unchecked = icmp ult i64 %a, %count
  br i1 %unchecked, label %look, label %run
look:
  %given.at = getelementptr ptr, ptr %arguments, i64 %a
  %given = load ptr, ptr %given.at
  %null = icmp eq ptr %given, null
  br i1 %null, label %is.null, label %fine
fine:
  %argument.off = shl i64 %a, 3
  %argument.place = add i64 %argument.off, 64
  %argument.at = getelementptr i8, ptr %m, i64 %argument.place
  store ptr %given, ptr %argument.at
  %a1 = add i64 %a, 1
  br label %check
is.null:
  ret i32 1
run:
  %r = call i32 @run_commands(ptr %m, ptr %list)
  %good.run = icmp eq i32 %r, 0
  br i1 %good.run, label %judge, label %failed
failed:
  ret i32 %r
judge:
  %s = phi i64 [ 0, %run ], [ %s1, %good ]
  %unjudged = icmp ult i64 %s, %failing
  br i1 %unjudged, label %word, label %done
word:
  %status = getelementptr i8, ptr %m, i64 %status.place
  %word.at = getelementptr i32, ptr %status, i64 %s
  %word.is = load i32, ptr %word.at
  %bad = icmp ne i32 %word.is, 0
  br i1 %bad, label %tell, label %good
good:
  %s1 = add i64 %s, 1
  br label %judge
tell:
  %message.at = getelementptr i64, ptr %first, i64 %s
  %message64 = load i64, ptr %message.at
  %message = trunc i64 %message64 to i32
  %number = add i32 %message, %word.is
  ret i32 %number
done:
  ret i32 0
}

; A copy of a parameter on the host, and the other way.
define i32 @NAME_get(ptr %m, i32 %number, ptr %array) {
  %r = call i32 @move(ptr %m, i32 %number, ptr %array, ptr @getting)
  ret i32 %r
}

define i32 @NAME_set(ptr %m, i32 %number, ptr %array) {
  %r = call i32 @move(ptr %m, i32 %number, ptr %array, ptr @setting)
  ret i32 %r
}

; Arguments of the commands: the parameter's address, the array, how many bytes.
define internal i32 @move(ptr %m, i32 %number, ptr %array, ptr %list) {
entry:
  %failed.at = getelementptr i8, ptr %m, i64 24
  %closed = load i32, ptr %failed.at
  %open = icmp eq i32 %closed, 0
  br i1 %open, label %look, label %is.closed
is.closed:
  ret i32 %closed
look:
  %null = icmp eq ptr %array, null
  br i1 %null, label %is.null, label %find
is.null:
  ret i32 1
find:
  %p = call ptr @NAME_parameter(ptr %m, i32 %number)
  %none = icmp eq ptr %p, null
  br i1 %none, label %is.none, label %run
is.none:
  ret i32 NO_PARAMETER
run:
  %n = zext i32 %number to i64
  %bytes.at = getelementptr [2 x i64], ptr @parameters, i64 %n, i64 1
  %bytes = load i64, ptr %bytes.at
  %first = getelementptr i8, ptr %m, i64 64
  %second = getelementptr i8, ptr %m, i64 72
  %third = getelementptr i8, ptr %m, i64 80
  store ptr %p, ptr %first
  store ptr %array, ptr %second
  store i64 %bytes, ptr %third
  %r = call i32 @run_commands(ptr %m, ptr %list)
  ret i32 %r
}

; The address of a parameter on the GPU.
define ptr @NAME_parameter(ptr %m, i32 %number) {
entry:
  %known = icmp ult i32 %number, PARAMETER_COUNT
  %memory.at = getelementptr i8, ptr %m, i64 MEMORY_AT
  %memory = load ptr, ptr %memory.at
  %there = icmp ne ptr %memory, null
  %found = and i1 %known, %there
  br i1 %found, label %find, label %none
none:
  ret ptr null
find:
  %n = zext i32 %number to i64
  %place.at = getelementptr [2 x i64], ptr @parameters, i64 %n
  %place = load i64, ptr %place.at
  %p = getelementptr i8, ptr %memory, i64 %place
  ret ptr %p
}

; What a file of parameters begins with.
define ptr @NAME_head() {
  ret ptr @head
}

; What a number that a function has returned says; of one that is less than 0 the driver's words.
define ptr @NAME_message(i32 %number) {
entry:
  %words = alloca ptr
  store ptr @message_0, ptr %words
  %of.driver = icmp slt i32 %number, 0
  br i1 %of.driver, label %load, label %own
own:
  %known = icmp ult i32 %number, MESSAGE_COUNT
  %n = select i1 %known, i32 %number, i32 0
  %n64 = zext i32 %n to i64
  %text.at = getelementptr ptr, ptr @messages, i64 %n64
  %text = load ptr, ptr %text.at
  ret ptr %text
load:
  %driver = call ptr @dlopen(ptr @driver_file, i32 2)
  %absent = icmp eq ptr %driver, null
  br i1 %absent, label %out, label %find
find:
  %function = call ptr @dlsym(ptr %driver, ptr @driver_words)
  %lacks = icmp eq ptr %function, null
  br i1 %lacks, label %out, label %ask
ask:
  %code = sub i32 0, %number
  %r = call i32 %function(i32 %code, ptr %words)
  br label %out
out:
  %said = load ptr, ptr %words
  %silent = icmp eq ptr %said, null
  %result = select i1 %silent, ptr @message_0, ptr %said
  ret ptr %result
}

!llvm.module.flags = !{!0}
!0 = !{i32 4, !"tvm_target", !"{\22kind\22:\22llvm\22,\22mcpu\22:\22x86-64\22,\22opt-level\22:2}"}
