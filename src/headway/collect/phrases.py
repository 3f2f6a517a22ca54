"""The words of HTCondor, its plugins and Headway: no others stay in anonymised reasons.

A word that is not here may be somebody's name.
"""

from __future__ import annotations

import re

_PHRASES = """
Job submitted from host. Job executing on host. Job was evicted. Job terminated. Job was held. Job
was aborted by the user. Job was released. Job was suspended. Job was unsuspended. Job was
checkpointed. Job disconnected, attempting to reconnect. Job reconnected to. Job reconnection
failed. Error from starter on. Warning from starter on. Image size of job updated. Job ad
information event triggered. Shadow exception. Number of processes actually suspended. Job not
properly linked for Condor. Job file not executable. Changing job attribute from to. Setting job
attribute to. Started Finished Entered queue to transfer transferring input output files. Seconds
spent in queue. Transferring to host. Cluster submitted removed. Job Materialization Paused
Resumed. Factory. Grid resource back up, detected down. Job submitted to grid resource. PRE POST
script terminated skipped. DAG Node. Node executing terminated. Job performing stage in out of
files. The job's remote status is unknown, is known again. Reserved space. Released space. Global
JobLog. Dataflow job was skipped. Reason unspecified. No reason. Code Subcode.

Transfer input files failure at execution point using protocol. Transfer output files failure at
access point while sending files to, receiving files from. Details. total failures, first failure.
reading writing from to file. errno. No such file or directory. Permission denied. Exec format
error. Text file busy. Input/output error. I/O. Cannot allocate memory. No space left on device.
Stale file handle. Stale NFS file handle. Disk quota exceeded. Is a directory. Not a directory.
File exists. File too large. Too many open files. Too many levels of symbolic links. Argument list
too long. Bad address. Broken pipe. Device or resource busy. Invalid argument. Connection timed
out, refused, reset by peer, aborted, closed. No route to host. Network is unreachable, down.
Resource temporarily unavailable. Timer expired. Operation not permitted, not supported, timed
out, cancelled, already in progress. Host is down. Name or service not known. Temporary failure in
name resolution. Could not resolve host. Interrupted system call. Read-only file system. Success.
Unknown error. Protocol error. Address already in use. Killed. Failed to transfer files.
FILETRANSFER. non-zero exit from. Error. server returned HTTP response status Not Found,
Forbidden, Unauthorized, Bad Request, Internal Server Error, Service Unavailable, Bad Gateway,
Gateway Timeout, Too Many Requests, Moved, Gone, Conflict, Method Not Allowed, OK, Partial
Content. site. URL file. retriable, retryable, temporary, transient, permanent. no space left at
origin. cache director origin. exited exit code signal. no valid classads in output. did not
produce. plugin plugins failed. Input Output File transfer stalled for seconds. lack of progress.
STARTER SHADOW STARTD SCHEDD at failed to send receive file(s) to from. upload download uploading
downloading fetch fetching put get. timeout time-out timed-out. couldn't could not connect to. SSL
TLS certificate problem verify. token expired, invalid, missing, rejected. authentication
authorization credential credentials. checksum mismatch. size mismatch. truncated. attempts
attempt retries retry tries. after before within during. bytes byte kB KB MB GB TB KiB MiB GiB TiB
B K M G T Mb Gb percent. broken pipe. premature end. failed attempts. curl curl_plugin osdf_plugin
stash_plugin pelican_plugin stashcp pelican osdf htcondor condor. object server client proxy
redirect redirects. range. length. slow speed too low average limit. kbps mbps rate.

The job attribute expression evaluated to TRUE FALSE UNDEFINED ERROR. PeriodicHold PeriodicRelease
PeriodicRemove PeriodicVacate OnExitHold OnExitRemove OnExitHoldReason PeriodicHoldReason
PeriodicHoldSubCode SYSTEM_PERIODIC_HOLD SYSTEM_PERIODIC_RELEASE SYSTEM_PERIODIC_REMOVE
SYSTEM_PERIODIC_VACATE WANT_HOLD PREEMPT JobStatus HoldReasonCode HoldReasonSubCode NumJobStarts
NumShadowStarts NumHolds NumSystemHolds NumJobCompletions EnteredCurrentStatus CurrentTime time
ExitCode ExitBySignal ExitStatus JobRunCount RemoteWallClockTime MemoryUsage ResidentSetSize
ImageSize DiskUsage RequestMemory RequestDisk RequestCpus RequestGpus JobLeaseDuration JobDuration
JobDurationCategory AllowedJobDuration AllowedExecuteDuration ifThenElse isUndefined. system macro
policy periodic on exit hold release remove vacate. The job exceeded allowed job execute duration
of. maximum runtime run-time wall clock walltime. limit reached. ran too long. bad exit. memory
usage exceeded request_memory request_disk request_cpus memory limit. disk usage exceeded
allocated disk. Memory Disk Cpus GPUs usage is over above more than requested allocated
provisioned. peak peaks used using. Job has gone over. cgroup out-of-memory oom killer killed by
the. megabytes gigabytes kilobytes. via condor_rm condor_hold condor_release condor_vacate
condor_vacate_job condor_qedit by user. Python-initiated action. Submitted on hold at user's
request. Spooling input data files. removed released held by DAGMan. parent. DAG Removed because.
Other. Job vacated by schedd, startd, user, admin. Startd was shutdown. Startd was asked to
vacate. Claim was deactivated, vacated, preempted. preempting draining drained. Job not found at
execution machine. Job disconnected too long. JobLeaseDuration seconds expired. Socket between
submit and execute hosts closed unexpectedly. Trying to reconnect. Can not reconnect to,
rescheduling job. startd not found. starter shadow exited died. unexpectedly. machine no longer
available. lost contact. shadow exception. Failed to execute, initiate, start, create, open, read,
write, move, rename, remove, chmod, access, stat, find, load, run, launch, initialize, obtain,
store, locate, parse. directory initial working iwd. executable command interpreter shell script.
user log. standard input output error stdin stdout stderr. container image singularity apptainer
docker pull pulled runtime universe. test failed. cannot mount. sif oci registry. hook prepare
job. account slot user. spool. checkpoint checkpoints. self-checkpointing. restart restarted.
transfer_input_files transfer_output_files should_transfer_files when_to_transfer_output.
MAX_TRANSFER_INPUT_MB MAX_TRANSFER_OUTPUT_MB. larger smaller greater less than. has have had been
be being was were is are it its this that these those not no none and or but if then else because
due for from to into of off on in at as an a the with without within by via per while when where
which who what there here also only more most less least first last next previous again yet still
already never ever all any some each every other another same one two three. can cannot could may
might must should will would do does did done. see please check contact your you we our they their
administrator support. new old current. value values return returned returning normal abnormal
termination own accord. Usr Sys Run Remote Local Usage Total Bytes Sent Received By Job.
Partitionable Resources Usage Request Allocated Assigned. TimeExecute TimeSlotBusy. core file
Corefile in. CPU times. requeued. event events log logs. s sec secs second seconds min mins minute
minutes h hr hour hours d day days ms. idle running completed suspended. claim claimed unclaimed.
match matched requirements rank. negotiator collector central manager. scheduler. pool glidein
pilot. factory frontend. EC2 GAHP grid cloud connection instance. cron. deferral. cuda gpu nvidia
driver. node unfit probe. stage stage-in stage-out. headway agent. network. internet. connection.
reset. protocol version. mode. type. name. id. number. count. max min. option. argument arguments.
environment. variable. undefined. syntax. unexpected. internal. fatal. warning. info. debug. abort
aborted. cancel. canceled cancelled. denied. rejected. refused. unavailable. unreachable. unknown.
unable. unsupported. unspecified. missing. empty. corrupt corrupted. damaged. incomplete. partial.
whole. complete. finish. begin end start stop wait waiting. queue queued. pending. busy. free.
full. over under. up down. now later soon.
"""

WORDS = frozenset(word.lower() for word in re.findall(r"[A-Za-z][A-Za-z0-9_]*", _PHRASES))
