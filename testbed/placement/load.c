// SPDX-License-Identifier: GPL-2.0-only
//
// Problem: where CFS puts threads that wake each other decides what its baselines are worth, and
// only a kernel that has CFS can tell. Those of the papers' hosts boot in an emulator, but have no
// sched_ext and run nothing of the testbed's.
// How: this program is all there is in such a machine, its init. Groups of threads stand for VMs,
// each thread for a vCPU with one thread of its guest. It reads the groups from its environment
// (the kernel's command line), lets them run, and prints what /proc says each of them had: shares
// of time run and waited for a CPU, turns, migrations, and how often threads of a group were on
// one CPU's runqueue.
//
// Environment: G1, G2, ... = KIND:THREADS[:...], at most 16; DUR, WARM: seconds; CG=1: a cgroup
// for each group; STAGGER: milliseconds within which threads begin.
//   hog:N                      computes
//   barrier:N:WORK:VARY:SPIN   computes WORK us (within VARY %), then waits for the others, first
//                              spinning for SPIN us
//   duty:N:WORK:SLEEP          computes WORK us and sleeps SLEEP us, each within 50 %
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 64, GROUPS = 16, CPUS = 256, SELDOM = 49 };
static const uint64_t US = 1000, MS = 1000000, SEC = 1000000000;

struct group {
	char kind[16];
	int threads;
	uint64_t work, vary, spin; // ns, %, ns; of `duty`, `vary` is the sleep, ns
	int arrived, round;	   // of the group's barrier; `round` is the futex
	uint64_t rounds;
	int tid[THREADS];
	pid_t pid;
};

static struct shared {
	int go;
	struct group groups[GROUPS];
} *shared; // among all groups' processes

struct totals {
	uint64_t run, ready, turns, rounds;
	uint64_t migrations, at; // the time up to which these count
};

struct thread {
	struct group *group;
	int index;
};

static __thread unsigned int seed;

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * SEC + (uint64_t)time.tv_nsec;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void nap(uint64_t ns)
{
	struct timespec time = {.tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC)};

	nanosleep(&time, NULL);
}

// Uses this much time on a CPU, however long that takes.
static void compute(uint64_t ns)
{
	uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 200; i++)
			;
}

static uint64_t within(uint64_t mean, uint64_t percent)
{
	uint64_t spread = mean * percent / 100;

	return mean - spread + (uint64_t)((double)rand_r(&seed) / RAND_MAX * 2 * (double)spread);
}

static void futex(int *word, int operation, int value)
{
	syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

// The last one to come wakes all others at once.
static void meet(struct group *group)
{
	int round = __atomic_load_n(&group->round, __ATOMIC_ACQUIRE);
	uint64_t patience = now(CLOCK_MONOTONIC) + group->spin;

	if (__sync_add_and_fetch(&group->arrived, 1) == group->threads) {
		group->arrived = 0;
		__sync_add_and_fetch(&group->rounds, 1);
		__sync_add_and_fetch(&group->round, 1);
		futex(&group->round, FUTEX_WAKE, THREADS);
		return;
	}
	while (group->spin && __atomic_load_n(&group->round, __ATOMIC_ACQUIRE) == round &&
	       now(CLOCK_MONOTONIC) < patience)
		;
	while (__atomic_load_n(&group->round, __ATOMIC_ACQUIRE) == round)
		futex(&group->round, FUTEX_WAIT, round);
}

static void *run(void *argument)
{
	struct thread *thread = argument;
	struct group *group = thread->group;

	group->tid[thread->index] = (int)syscall(SYS_gettid);
	seed = (unsigned int)((group - shared->groups) * 1000 + thread->index + 1);
	while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
		nap(MS);
	nap((uint64_t)((double)rand_r(&seed) / RAND_MAX * (double)(number("STAGGER", 0) * MS)));
	for (;;) {
		if (!strcmp(group->kind, "hog")) {
			compute(10 * MS);
		} else if (!strcmp(group->kind, "barrier")) {
			compute(within(group->work, group->vary));
			meet(group);
		} else {
			compute(within(group->work, 50));
			nap(within(group->vary, 50));
			__sync_add_and_fetch(&group->rounds, 1);
		}
	}
	return NULL;
}

static ssize_t read_file(const char *path, char *into, size_t size)
{
	int file = open(path, O_RDONLY);
	ssize_t length = file < 0 ? -1 : read(file, into, size - 1);

	if (file >= 0)
		close(file);
	into[length > 0 ? length : 0] = 0;
	return length;
}

static void write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		printf("ERROR %s: %s\n", path, strerror(errno));
	if (file >= 0)
		close(file);
}

// The group's process: it ends with the machine.
static void begin(struct group *group, int index, int cgroups)
{
	static pthread_t threads[THREADS];
	static struct thread arguments[THREADS];
	char path[64], pid[16];

	if (cgroups) {
		snprintf(path, sizeof(path), "/cg/vm%d", index);
		mkdir(path, 0755);
		snprintf(path, sizeof(path), "/cg/vm%d/tasks", index);
		snprintf(pid, sizeof(pid), "%d", getpid());
		write_file(path, pid);
	}
	for (int i = 0; i < group->threads; i++) {
		arguments[i] = (struct thread){.group = group, .index = i};
		if (pthread_create(&threads[i], NULL, run, &arguments[i]))
			printf("ERROR pthread_create: %s\n", strerror(errno));
	}
	pause();
}

static void parse(struct group *group, const char *text)
{
	char copy[128];
	uint64_t values[4] = {1};
	int count = 0;
	char *word;

	snprintf(copy, sizeof(copy), "%s", text);
	word = strtok(copy, ":");
	snprintf(group->kind, sizeof(group->kind), "%s", word ? word : "");
	if (strcmp(group->kind, "hog") && strcmp(group->kind, "barrier") &&
	    strcmp(group->kind, "duty"))
		printf("ERROR %s: hog, barrier and duty are known\n", text);
	while ((word = strtok(NULL, ":")) && count < 4)
		values[count++] = strtoull(word, NULL, 10);
	group->threads = values[0] < THREADS ? (int)values[0] : THREADS;
	group->work = values[1] * US;
	group->vary = !strcmp(group->kind, "duty") ? values[2] * US : values[2];
	group->spin = values[3] * US;
}

// What schedstat says about the group, and its rounds.
static void read_times(const struct group *group, struct totals *sum)
{
	char path[96], text[512];

	for (int i = 0; i < group->threads; i++) {
		unsigned long long run = 0, ready = 0, turns = 0;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", group->pid,
			 group->tid[i]);
		if (read_file(path, text, sizeof(text)) > 0)
			sscanf(text, "%llu %llu %llu", &run, &ready, &turns);
		sum->run += run;
		sum->ready += ready;
		sum->turns += turns;
	}
	sum->rounds = group->rounds;
}

// The group's migrations. That file of the kernel's has a hundred lines, which take long.
static void read_migrations(const struct group *group, struct totals *sum)
{
	char path[96], text[8192];

	for (int i = 0; i < group->threads; i++) {
		const char *line;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/sched", group->pid, group->tid[i]);
		if (read_file(path, text, sizeof(text)) > 0 &&
		    (line = strstr(text, "se.nr_migrations")))
			sum->migrations += strtoull(strchr(line, ':') + 1, NULL, 10);
	}
	sum->at = now(CLOCK_MONOTONIC);
}

// The CPU on whose runqueue a thread is, or -1: fields 3 (state) and 39 (processor) of its stat.
static int on_cpu(const struct group *group, int index)
{
	char path[96], text[512], *field;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", group->pid, group->tid[index]);
	if (read_file(path, text, sizeof(text)) <= 0 || !(field = strrchr(text, ')')) ||
	    field[2] != 'R')
		return -1;
	field += 2;
	for (int skipped = 3; skipped < 39 && field; skipped++)
		field = strchr(field + 1, ' ');
	return field ? atoi(field) : -1;
}

// How many of the group's runnable threads there are, and how many share a runqueue.
static void look(const struct group *group, uint64_t *runnable, uint64_t *stacked)
{
	int on[CPUS] = {0};

	for (int i = 0; i < group->threads; i++) {
		int cpu = on_cpu(group, i);

		if (cpu >= 0 && cpu < CPUS)
			on[cpu]++;
	}
	for (int cpu = 0; cpu < CPUS; cpu++) {
		*runnable += (uint64_t)on[cpu];
		*stacked += on[cpu] > 1 ? (uint64_t)on[cpu] : 0;
	}
}

static void set_up(int cgroups)
{
	int console;

	mount("proc", "/proc", "proc", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	console = open("/dev/console", O_RDWR);
	for (int file = 0; console >= 0 && file < 3; file++)
		dup2(console, file);
	setvbuf(stdout, NULL, _IONBF, 0);
	if (cgroups && (mkdir("/cg", 0755), mount("cgroup", "/cg", "cgroup", 0, "cpu")))
		printf("ERROR cgroup: %s\n", strerror(errno));
}

int main(void)
{
	int cgroups = (int)number("CG", 0), count = 0;
	uint64_t runnable[GROUPS] = {0}, stacked[GROUPS] = {0}, from, length, took = 0;
	struct totals before[GROUPS] = {0}, after[GROUPS] = {0};
	struct sched_param first = {.sched_priority = 50};

	set_up(cgroups);
	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (; count < GROUPS; count++) {
		struct group *group = &shared->groups[count];
		char name[8];

		snprintf(name, sizeof(name), "G%d", count + 1);
		if (!getenv(name))
			break;
		parse(group, getenv(name));
		// The child's word would be in the same memory.
		pid_t pid = fork();

		if (!pid)
			begin(group, count, cgroups);
		group->pid = pid;
	}
	sleep(1);
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
	sleep((unsigned int)number("WARM", 1));

	// Looks now and then, whoever runs: so rarely that hardly anybody has to wait for it. A
	// look at 26 threads takes 20 ms on one of twelve emulated CPUs.
	sched_setscheduler(0, SCHED_FIFO, &first);
	for (int i = 0; i < count; i++)
		read_migrations(&shared->groups[i], &before[i]);
	nap(SEC / 2);
	for (int i = 0; i < count; i++)
		read_times(&shared->groups[i], &before[i]);
	from = now(CLOCK_MONOTONIC);
	while ((length = now(CLOCK_MONOTONIC) - from) < number("DUR", 5) * SEC) {
		nap(took > MS / 2 ? SELDOM * took : 9 * MS);
		took = now(CLOCK_THREAD_CPUTIME_ID);
		for (int i = 0; i < count; i++)
			look(&shared->groups[i], &runnable[i], &stacked[i]);
		took = now(CLOCK_THREAD_CPUTIME_ID) - took;
	}
	for (int i = 0; i < count; i++)
		read_times(&shared->groups[i], &after[i]);
	for (int i = 0; i < count; i++)
		read_migrations(&shared->groups[i], &after[i]);
	for (int i = 0; i < count; i++) {
		const struct group *group = &shared->groups[i];
		double seconds = (double)length / (double)SEC,
		       all = (double)length * group->threads,
		       moving = (double)(after[i].at - before[i].at) / (double)SEC;

		printf("GROUP %s run %.3f ready %.3f turns %.0f migrations %.1f rounds %.1f "
		       "stacked %.3f\n",
		       group->kind, (double)(after[i].run - before[i].run) / all,
		       (double)(after[i].ready - before[i].ready) / all,
		       (double)(after[i].turns - before[i].turns) / seconds,
		       (double)(after[i].migrations - before[i].migrations) / moving,
		       (double)(after[i].rounds - before[i].rounds) / seconds,
		       runnable[i] ? (double)stacked[i] / (double)runnable[i] : 0);
	}
	// The serial line is slower than the machine.
	nap(SEC / 5);
	reboot(RB_AUTOBOOT);
	return 0;
}
