/* loadgen - the clients' side of the benchmark: closed loop, one thread, epoll, loopback only.
 *
 *   loadgen -P PORT -t TOKEN -b BODY_FILE [-c CONNECTIONS] [-d SECONDS] [-w WARM_UP_SECONDS]
 *           [-r RAMP_SECONDS] [-n MAX_REQUESTS] [-a SOURCE_ADDRESSES] [-s]
 *
 * Each connection POSTs the body, waits for the whole answer, and does it again.
 * Connections start evenly over the ramp, from SOURCE_ADDRESSES addresses 127.0.0.1, .2, ...
 * in turn, since a gateway may limit the connections of one address.
 *
 * Against mock_upstream it reports what a proxy in between added:
 *   unary:    added = (upstream received - we sent) + (we received - upstream sent)
 *   SSE (-s): first = the same for the first event; event = we received - upstream sent
 * Samples of the warm-up are dropped, while "answered" and "events" count everything,
 * since the server's CPU time is taken over the whole run.
 * Prints one JSON object; times in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define MARK_LENGTH 41             /* "t=" + 19 digits + "," + 19 digits */
#define STUCK_AFTER_NS (30 * NS_PER_S) /* a request without an end this long after the run is given up */

enum State { HEAD, SIZED_BODY, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER };

typedef struct {
    int fd, index, status, last_on_connection, saw_mark;
    enum State state;
    size_t left, sent;
    char head[8192];
    size_t head_used;
    char *body;
    size_t body_used, body_capacity, scanned;
    char line[64];
    size_t line_used;
    int64_t started_ns;
} Conn;

typedef struct {
    int64_t *values;
    size_t n, capacity;
} Samples;

static int poller, sse, port, sources = 1, live;
static const char *token, *body_file;
static char *request;
static size_t request_length;
static Samples added, first, event;
static uint64_t answered, counted, events, errors, non200, begun, max_requests = UINT64_MAX;
static int64_t warm_until_ns, stop_at_ns, last_answer_ns;
static char first_refusal[160];

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void add(Samples *s, int64_t value) {
    if (s->n == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 65536;
        s->values = realloc(s->values, s->capacity * sizeof *s->values);
    }
    s->values[s->n++] = value;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, Samples *s) {
    if (!s->n) return;
    qsort(s->values, s->n, sizeof *s->values, ascending);
    printf(", \"%s_us\": {\"p50\": %.1f, \"p99\": %.1f, \"n\": %zu}", name, s->values[s->n / 2] / 1e3,
           s->values[s->n * 99 / 100] / 1e3, s->n);
}

static void watch(Conn *c, uint32_t interest, int operation) {
    struct epoll_event e = {.events = interest, .data.ptr = c};
    epoll_ctl(poller, operation, c->fd, &e);
}

static void drop(Conn *c) {
    close(c->fd);
    c->fd = -1;
    live--;
}

static int may_begin(void) { return begun < max_requests && now_ns() < stop_at_ns; }

static void push(Conn *c) {
    while (c->sent < request_length) {
        ssize_t n = send(c->fd, request + c->sent, request_length - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) {
                watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            } else {
                errors++;
                drop(c);
            }
            return;
        }
        c->sent += n;
    }
}

static void begin(Conn *c) {
    if (!may_begin()) {
        drop(c);
        return;
    }
    begun++;
    c->state = HEAD;
    c->head_used = c->body_used = c->scanned = c->line_used = c->sent = 0;
    c->saw_mark = c->last_on_connection = 0;
    c->started_ns = now_ns();
    push(c);
}

static void open_connection(Conn *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    live++;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + c->index % sources)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(c->fd, (void *)&from, sizeof from) || connect(c->fd, (void *)&to, sizeof to)) {
        errors++;
        drop(c);
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLLIN, EPOLL_CTL_ADD);
    begin(c);
}

static void reopen(Conn *c) {
    drop(c);
    if (may_begin()) open_connection(c);
}

static void keep(Conn *c, const char *bytes, size_t n) {
    while (c->body_capacity < c->body_used + n) {
        c->body_capacity = c->body_capacity ? c->body_capacity * 2 : 4096;
        c->body = realloc(c->body, c->body_capacity);
    }
    memcpy(c->body + c->body_used, bytes, n);
    c->body_used += n;
}

static void read_marks(Conn *c, int64_t now) {
    char *mark;
    while (c->body_used - c->scanned >= MARK_LENGTH &&
           (mark = memmem(c->body + c->scanned, c->body_used - c->scanned, "t=0", 3))) {
        c->scanned = mark - c->body;
        if (c->body_used - c->scanned < MARK_LENGTH) return;
        int64_t received = atoll(mark + 2), sent = atoll(mark + 22);
        events++;
        if (now > warm_until_ns) {
            int64_t both_ways = (received - c->started_ns) + (now - sent);
            if (!sse) add(&added, both_ways);
            else if (!c->saw_mark) add(&first, both_ways);
            if (sse) add(&event, now - sent);
        }
        c->saw_mark = 1;
        c->scanned += MARK_LENGTH;
    }
}

static void finish(Conn *c, int64_t now) {
    read_marks(c, now);
    if (c->status == 200 && c->saw_mark) {
        answered++;
        last_answer_ns = now;
        if (now > warm_until_ns) counted++;
    } else {
        int n = c->body_used < 120 ? c->body_used : 120;
        if (!non200++) snprintf(first_refusal, sizeof first_refusal, "%d %.*s", c->status, n, c->body ? c->body : "");
    }
    if (c->last_on_connection) reopen(c);
    else begin(c);
}

/* Whether a whole line now lies in c->line, moving *at past it. */
static int read_line(Conn *c, const char **at, const char *end) {
    while (*at < end) {
        char ch = *(*at)++;
        if (ch == '\n') {
            c->line[c->line_used] = 0;
            c->line_used = 0;
            return 1;
        }
        if (ch != '\r' && c->line_used < sizeof c->line - 1) c->line[c->line_used++] = ch;
    }
    return 0;
}

static const char *read_head(Conn *c, const char *at, const char *end) {
    size_t n = end - at, room = sizeof c->head - 1 - c->head_used;
    if (n > room) n = room;
    memcpy(c->head + c->head_used, at, n);
    c->head[c->head_used + n] = 0;
    char *blank = strstr(c->head, "\r\n\r\n");
    if (!blank) {
        c->head_used += n;
        return n ? at + n : NULL;
    }
    at += (blank + 4 - c->head) - c->head_used;
    blank[2] = 0;
    char *length = strcasestr(c->head, "\r\ncontent-length:");
    c->status = atoi(c->head + 9);
    c->last_on_connection = strcasestr(c->head, "\r\nconnection: close") != NULL;
    c->left = length ? strtoul(length + 17, NULL, 10) : 0;
    c->state = strcasestr(c->head, "\r\ntransfer-encoding: chunked") ? CHUNK_SIZE : SIZED_BODY;
    return at;
}

static const char *read_body(Conn *c, const char *at, const char *end) {
    size_t n = (size_t)(end - at) < c->left ? (size_t)(end - at) : c->left;
    keep(c, at, n);
    c->left -= n;
    if (!c->left && c->state == CHUNK_DATA) c->state = CHUNK_END;
    return at + n;
}

/* Feeds received bytes to the answer being read. Requests are not pipelined, so it ends with them. */
static void feed(Conn *c, const char *at, size_t n) {
    const char *end = at + n;
    int64_t now = now_ns();
    while (at && (at < end || (c->state == SIZED_BODY && !c->left))) {
        switch (c->state) {
        case HEAD:
            at = read_head(c, at, end);
            break;
        case SIZED_BODY:
        case CHUNK_DATA:
            at = read_body(c, at, end);
            if (c->state == SIZED_BODY && !c->left) {
                finish(c, now);
                return;
            }
            break;
        case CHUNK_END:
            if (read_line(c, &at, end)) c->state = CHUNK_SIZE;
            break;
        case CHUNK_SIZE:
            if (!read_line(c, &at, end)) break;
            c->left = strtoul(c->line, NULL, 16);
            c->state = c->left ? CHUNK_DATA : TRAILER;
            break;
        case TRAILER:
            if (read_line(c, &at, end) && !c->line[0]) {
                finish(c, now);
                return;
            }
            break;
        }
    }
    if (!at) {
        errors++;
        drop(c);
    } else if (sse) {
        read_marks(c, now);
    }
}

static void on_ready(Conn *c, uint32_t ready) {
    static char buffer[1 << 17];
    if (ready & EPOLLOUT) {
        push(c);
        if (c->fd >= 0 && c->sent == request_length) watch(c, EPOLLIN, EPOLL_CTL_MOD);
    }
    if (c->fd < 0 || !(ready & (EPOLLIN | EPOLLERR | EPOLLHUP))) return;
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n > 0) {
        feed(c, buffer, n);
    } else if (n == 0 || errno != EAGAIN) {
        errors++;
        reopen(c);
    }
}

static int build_request(void) {
    FILE *f = fopen(body_file, "rb");
    if (!f) return perror(body_file), 0;
    fseek(f, 0, SEEK_END);
    size_t n = ftell(f);
    rewind(f);
    request = malloc(n + 1024);
    request_length = snprintf(request, 1024,
                              "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
                              "Content-Type: application/json\r\nAccept: */*\r\nUser-Agent: loadgen\r\n"
                              "Content-Length: %zu\r\n\r\n", port, token, n);
    int complete = fread(request + request_length, 1, n, f) == n;
    request_length += n;
    fclose(f);
    return complete;
}

static void run(Conn *conns, int connections, int64_t started_ns, int64_t ramp_ns) {
    struct epoll_event ready[512];
    int opened = 0;
    while (live || opened < connections) {
        int64_t now = now_ns();
        if (now > stop_at_ns + STUCK_AFTER_NS) break;
        while (opened < connections && now >= started_ns + ramp_ns * opened / connections) open_connection(&conns[opened++]);
        int64_t wait_ns = NS_PER_S / 10;
        if (opened < connections) wait_ns = started_ns + ramp_ns * opened / connections - now_ns();
        if (wait_ns < 0) wait_ns = 0;
        struct timespec wait = {wait_ns / NS_PER_S, wait_ns % NS_PER_S};
        int n = epoll_pwait2(poller, ready, 512, &wait, NULL);
        for (int i = 0; i < n; i++) {
            Conn *c = ready[i].data.ptr;
            if (c->fd >= 0) on_ready(c, ready[i].events);
        }
    }
}

static void report(int connections) {
    double seconds = (last_answer_ns - warm_until_ns) / 1e9;
    printf("{\"connections\": %d, \"answered\": %lu, \"events\": %lu, \"rps\": %.1f, \"errors\": %lu, \"refused\": %lu, "
           "\"stuck\": %d", connections, answered, events, seconds > 0 ? counted / seconds : 0.0, errors, non200, live);
    print_samples("added", &added);
    print_samples("first", &first);
    print_samples("event", &event);
    printf(", \"first_refusal\": \"");
    for (char *p = first_refusal; *p; p++)
        if (*p >= ' ' && *p < 127 && *p != '"' && *p != '\\') putchar(*p);
    printf("\"}\n");
}

int main(int argc, char **argv) {
    int option, connections = 1;
    double seconds = 5, warm_up = 0, ramp = 0;
    while ((option = getopt(argc, argv, "P:t:b:c:d:w:r:n:a:s")) != -1) switch (option) {
        case 'P': port = atoi(optarg); break;
        case 't': token = optarg; break;
        case 'b': body_file = optarg; break;
        case 'c': connections = atoi(optarg); break;
        case 'd': seconds = atof(optarg); break;
        case 'w': warm_up = atof(optarg); break;
        case 'r': ramp = atof(optarg); break;
        case 'n': max_requests = strtoull(optarg, NULL, 10); break;
        case 'a': sources = atoi(optarg); break;
        case 's': sse = 1; break;
        default: return 2;
    }
    if (!port || !token || !body_file || !build_request()) return 2;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    prctl(PR_SET_TIMERSLACK, 1);
    poller = epoll_create1(0);
    Conn *conns = calloc(connections, sizeof *conns);
    for (int i = 0; i < connections; i++) conns[i].index = i;
    int64_t started_ns = now_ns();
    warm_until_ns = started_ns + warm_up * NS_PER_S;
    stop_at_ns = warm_until_ns + seconds * NS_PER_S;
    run(conns, connections, started_ns, ramp * NS_PER_S);
    report(connections);
    return 0;
}
