/* mock_upstream - the provider's side of the benchmark: one thread, epoll, loopback only.
 *
 *   mock_upstream -k KEY [-n SSE_EVENTS] [-i SSE_INTERVAL_MS] PORT
 *
 * POST: 401 unless the bearer is KEY, so that a proxy which forgets to swap it is
 * caught. A body holding "delay=0200ms" (four digits) is answered after that time,
 * so that one port serves every delay. A body holding "stream":true gets SSE_EVENTS
 * events SSE_INTERVAL_MS apart, a usage event and [DONE].
 * GET (any path): {"inflight": N}, the POSTs now waiting for their answer.
 *
 * Every answer carries "t=<received>,<sent>", 19 digits each, CLOCK_MONOTONIC in ns:
 * with its own clock the load generator can then tell what a proxy in between added,
 * free of this program's delay and timer jitter.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000LL
#define MODEL "\"model\":\"gpt-5.4-mini-2026-03-17\""
#define CHUNK "{\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion.chunk\",\"created\":1700000000," MODEL ","

typedef struct {
    int fd;
    uint32_t generation; /* a timer of an earlier request is stale when this has moved on */
    char *in;
    size_t used, capacity;
    int busy, stream, event;
    int64_t received_ns;
} Conn;

typedef struct {
    int64_t due_ns;
    Conn *conn;
    uint32_t generation;
} Timer;

static Timer *heap;
static size_t heap_size, heap_capacity;
static Conn **spare; /* closed connections are reused and never freed: stale timers may still point at them */
static size_t spare_size, spare_capacity;
static int poller, sse_events = 50, sse_interval_ms = 10, inflight;
static const char *key;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void timer_add(int64_t due_ns, Conn *c) {
    if (heap_size == heap_capacity) {
        heap_capacity = heap_capacity ? heap_capacity * 2 : 1024;
        heap = realloc(heap, heap_capacity * sizeof *heap);
    }
    size_t i = heap_size++;
    for (; i && heap[(i - 1) / 2].due_ns > due_ns; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = (Timer){due_ns, c, c->generation};
}

static Timer timer_pop(void) {
    Timer top = heap[0], last = heap[--heap_size];
    size_t i = 0;
    for (size_t k = 1; k < heap_size; k = 2 * i + 1) {
        if (k + 1 < heap_size && heap[k + 1].due_ns < heap[k].due_ns) k++;
        if (heap[k].due_ns >= last.due_ns) break;
        heap[i] = heap[k];
        i = k;
    }
    heap[i] = last;
    return top;
}

static void set_busy(Conn *c, int busy) {
    inflight += busy - c->busy;
    c->busy = busy;
}

static void conn_close(Conn *c) {
    close(c->fd);
    set_busy(c, 0);
    c->fd = -1;
    c->generation++;
    c->used = 0;
    if (spare_size == spare_capacity) {
        spare_capacity = spare_capacity ? spare_capacity * 2 : 1024;
        spare = realloc(spare, spare_capacity * sizeof *spare);
    }
    spare[spare_size++] = c;
}

/* Answers are far smaller than a socket's buffer, so a short write means a dead peer. */
static void send_all(Conn *c, const char *bytes, size_t n) {
    if (send(c->fd, bytes, n, MSG_NOSIGNAL) != (ssize_t)n) conn_close(c);
}

static void send_json(Conn *c, const char *status, const char *body) {
    char message[1600];
    int n = snprintf(message, sizeof message,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "x-request-id: req_mock\r\n\r\n%s", status, strlen(body), body);
    send_all(c, message, n);
}

static void answer_unary(Conn *c) {
    char body[1024];
    snprintf(body, sizeof body,
             "{\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion\",\"created\":1700000000," MODEL ",\"choices\":"
             "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"t=%019lld,%019lld The quick brown fox "
             "jumps over the lazy dog, and then once more, so that this has about the length of a short real answer."
             "\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":812,"
             "\"completion_tokens\":40,\"total_tokens\":852},\"system_fingerprint\":\"fp_mock\"}",
             (long long)c->received_ns, (long long)now_ns());
    set_busy(c, 0);
    send_json(c, "200 OK", body);
}

static int chunked_event(char *to, const char *data) {
    return sprintf(to, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

static void answer_next_event(Conn *c) {
    char data[512], message[2048];
    int n = 0;
    if (c->event == 0)
        n += sprintf(message, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                              "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n");
    if (c->event < sse_events) {
        snprintf(data, sizeof data,
                 CHUNK "\"choices\":[{\"index\":0,\"delta\":{%s\"content\":\"t=%019lld,%019lld \"},\"finish_reason\":null}]}",
                 c->event ? "" : "\"role\":\"assistant\",", (long long)c->received_ns, (long long)now_ns());
        n += chunked_event(message + n, data);
        c->event++;
        timer_add(now_ns() + sse_interval_ms * NS_PER_MS, c);
    } else {
        n += chunked_event(message + n, CHUNK "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}");
        n += chunked_event(message + n, CHUNK "\"choices\":[],\"usage\":{\"prompt_tokens\":812,"
                                              "\"completion_tokens\":50,\"total_tokens\":862}}");
        n += chunked_event(message + n, "[DONE]");
        n += sprintf(message + n, "0\r\n\r\n");
        set_busy(c, 0);
    }
    send_all(c, message, n);
}

static void answer(Conn *c) {
    if (c->stream) answer_next_event(c);
    else answer_unary(c);
}

/* Length of the whole request at the buffer's start, or 0 while it is incomplete. */
static size_t request_length(Conn *c, size_t head, int chunked, size_t content_length) {
    if (!chunked) return c->used >= head + content_length ? head + content_length : 0;
    char *end = memmem(c->in + head, c->used - head, "0\r\n\r\n", 5);
    return end ? (size_t)(end + 5 - c->in) : 0;
}

static int body_asks_for_stream(const char *body, size_t n) {
    return memmem(body, n, "\"stream\":true", 13) || memmem(body, n, "\"stream\": true", 14);
}

/* Starts the request at the buffer's start, if it is complete. Returns whether one was consumed. */
static int take_request(Conn *c) {
    char *end = memmem(c->in, c->used, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = end - c->in + 4, content_length = 0;
    int chunked = 0, authorised = 0, is_get = !memcmp(c->in, "GET ", 4);
    for (char *line = c->in; line < end;) {
        char *eol = memmem(line, end + 2 - line, "\r\n", 2);
        if (!strncasecmp(line, "content-length:", 15)) content_length = strtoul(line + 15, NULL, 10);
        else if (!strncasecmp(line, "transfer-encoding:", 18)) chunked = 1;
        else if (!strncasecmp(line, "authorization: bearer ", 22))
            authorised = (size_t)(eol - line) == 22 + strlen(key) && !memcmp(line + 22, key, strlen(key));
        line = eol + 2;
    }
    size_t total = request_length(c, head, chunked, content_length);
    if (!total) return 0;
    char *mark = memmem(c->in + head, total - head, "delay=", 6);
    long delay_ms = mark ? strtol(mark + 6, NULL, 10) : 0;
    c->stream = body_asks_for_stream(c->in + head, total - head);
    memmove(c->in, c->in + total, c->used - total);
    c->used -= total;
    if (is_get) {
        char body[64];
        snprintf(body, sizeof body, "{\"inflight\": %d}", inflight);
        send_json(c, "200 OK", body);
    } else if (!authorised) {
        send_json(c, "401 Unauthorized", "{\"error\":{\"message\":\"wrong key\",\"type\":\"invalid_request_error\"}}");
    } else {
        set_busy(c, 1);
        c->event = 0;
        c->generation++;
        c->received_ns = now_ns();
        if (delay_ms) timer_add(c->received_ns + delay_ms * NS_PER_MS, c);
        else answer(c);
    }
    return 1;
}

static void take_requests(Conn *c) {
    while (c->fd >= 0 && !c->busy && c->used && take_request(c)) {}
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        Conn *c = spare_size ? spare[--spare_size] : calloc(1, sizeof *c);
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static void receive(Conn *c) {
    if (c->capacity - c->used < 8192) {
        c->capacity = c->capacity ? c->capacity * 2 : 16384;
        c->in = realloc(c->in, c->capacity);
    }
    ssize_t n = recv(c->fd, c->in + c->used, c->capacity - c->used, 0);
    if (n > 0) {
        c->used += n;
        take_requests(c);
    } else if (n == 0 || errno != EAGAIN) {
        conn_close(c);
    }
}

static void fire_timers(void) {
    int64_t now = now_ns();
    while (heap_size && heap[0].due_ns <= now) {
        Timer t = timer_pop();
        if (t.conn->fd < 0 || t.conn->generation != t.generation) continue;
        answer(t.conn);
        take_requests(t.conn);
    }
}

static int listen_on(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (void *)&a, sizeof a) || listen(fd, 4096)) {
        perror("mock_upstream: listen");
        exit(1);
    }
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    return fd;
}

static void raise_file_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "k:n:i:")) != -1) {
        if (option == 'k') key = optarg;
        else if (option == 'n') sse_events = atoi(optarg);
        else if (option == 'i') sse_interval_ms = atoi(optarg);
        else return 2;
    }
    if (!key || optind != argc - 1) return 2;
    prctl(PR_SET_TIMERSLACK, 1);
    raise_file_limit();
    poller = epoll_create1(0);
    int listener = listen_on(atoi(argv[optind]));
    struct epoll_event events[512];
    for (;;) {
        struct timespec wait, *timeout = NULL;
        if (heap_size) {
            int64_t left = heap[0].due_ns - now_ns();
            if (left < 0) left = 0;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
            timeout = &wait;
        }
        int n = epoll_pwait2(poller, events, 512, timeout, NULL);
        for (int i = 0; i < n; i++) {
            Conn *c = events[i].data.ptr;
            if (!c) accept_all(listener);
            else if (c->fd >= 0) receive(c);
        }
        fire_timers();
    }
}
