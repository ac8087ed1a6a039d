package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/certs"
)

// Requests that are too large, too deep or too many are refused with the correct reason, and the server keeps working.
// Proves S11.
func TestExcessiveRequestsAreRejected(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "limits")
	const path = "/api/v1/namespaces/limits/configmaps"
	sized := func(name string, n int) string {
		return `{"metadata":{"name":"` + name + `"},"data":{"a":"` + strings.Repeat("x", n) + `"}}`
	}
	const tooLarge = "RequestEntityTooLarge"
	c.mustAnswer(t, 201, post(path, sized("mib", 1<<20-1)))
	// A limit of a kind is a matter of validation. It is below the limit of a request.
	c.mustRefuse(t, post(path, sized("above", 1<<20+1)), 422, "Invalid", "Too long: may not be more than 1048576 bytes")
	c.mustRefuse(t, post(path, sized("three", 3<<20-100)), 422, "Invalid", "Too long: may not be more than 1048576 "+
		"bytes")
	c.mustRefuse(t, post(path, sized("beyond", 3<<20)), 413, tooLarge, "limit is 3145728")
	c.mustRefuse(t, post(path, sized("far", 12<<20)), 413, tooLarge, "limit is 3145728")
	c.mustRefuse(t, patch(path+"/mib", "merge-patch+json", sized("mib", 3<<20)), 413, tooLarge, "limit is 3145728")
	c.mustRefuse(t, call{method: "DELETE", path: path + "/mib", body: []byte(sized("mib", 3<<20))}, 413, tooLarge,
		"limit is 3145728")

	// The store limits what no kind limits.
	pod := object{
		"metadata": object{"name": "large"},
		"spec": object{
			"containers": []any{object{"name": "c", "image": "i", "args": []any{strings.Repeat("x", 2<<20)}}},
		},
	}
	c.mustRefuse(t, post("/api/v1/namespaces/limits/pods", pod), 413, tooLarge, "")

	labels := make([]string, 30000)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"l%d":"v"`, i)
	}
	many := `{"metadata":{"name":"many","labels":{` + strings.Join(labels, ",") + `}}}`
	c.mustAnswer(t, 201, post(path, many))
	c.mustAnswer(t, 200, patch(path+"/many", "merge-patch+json", `{"metadata":{"labels":{"l7":null,"l8":"w"}}}`))
	bad := strings.ReplaceAll(many, `":"v"`, `":"?"`)
	if a := c.mustRefuse(t, post(path, bad), 422, "Invalid", "a valid label must be"); len(a.raw) > 1<<20 {
		t.Errorf("the message has %d bytes", len(a.raw))
	}
	million := `{"metadata":{"name":"million","labels":{` + strings.Repeat(strings.Join(labels, ",")+",",
		34) + labels[0] + `}}}`
	c.mustRefuse(t, post(path, million), 413, tooLarge, "limit is 3145728")

	checkDepth(t, c, path)
	checkPatchLimits(t, c, path)
	// URLs can be as long as the selectors of users, up to 1 MiB.
	many = "%28" + strings.TrimSuffix(strings.Repeat("mib,", 200<<10), ",") + "%29"
	if a := c.mustAnswer(t, 200, get("%s?limit=1&labelSelector=a+notin+%s", path, many)); len(a.itemList()) != 1 {
		t.Errorf("by a long selector: %.200s", a.raw)
	}
	tooLong := get("%s?labelSelector=a+notin+%s%s", path, many, many)
	// an error means that the client refused to send it
	if resp, err := c.request(context.Background(), tooLong); err == nil {
		if resp.Body.Close(); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("an address of more than a MiB: %d", resp.StatusCode)
		}
	}
	// Afterwards the server still answers, and has not kept the data.
	c.mustAnswer(t, 200, get("%s/mib", path))
	runtime.GC()
	var m runtime.MemStats
	if runtime.ReadMemStats(&m); m.HeapAlloc > 300<<20 {
		t.Errorf("%d MiB are in use", m.HeapAlloc>>20)
	}
}

// checkPatchLimits checks patches of many operations. The object mib exists.
func checkPatchLimits(t *testing.T, c *client, path string) {
	operations := strings.Repeat(`{"op":"test","path":"/metadata/name","value":"mib"},`, 10001)
	c.mustRefuse(t, patch(path+"/mib", "json-patch+json", "["+strings.TrimSuffix(operations, ",")+"]"), 413,
		"RequestEntityTooLarge",
		"The allowed maximum operations in a JSON patch is 10000, got 10001")
	c.mustRefuse(t, patch(path+"/mib", "json-patch+json", `[{"op":"test","path":""}]`), 422, "Invalid",
		"the server rejected our request")
	copies := `[{"op":"add","path":"/data/b","value":""}`
	for range 3000 {
		copies += `,{"op":"copy","from":"/data/a","path":"/data/b"}`
	}
	if a := c.do(t, patch(path+"/mib", "json-patch+json", copies+"]")); a.code < 400 || a.code >= 500 {
		t.Errorf("copies of copies: %d %.200s", a.code, a.raw)
	}
}

// checkDepth checks documents of many levels. The object mib exists.
func checkDepth(t *testing.T, c *client, path string) {
	deep := func(open, shut string, n int) string {
		return `{"metadata":{"name":"deep"},"x":` + strings.Repeat(open, n) + strings.Repeat(shut, n) + `}`
	}
	nested := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	c.mustAnswer(t, 200, patch(path+"/mib", "merge-patch+json", nested)) // the field is unknown, and causes a warning
	c.mustRefuse(t, post(path, deep("[", "]", 20000)), 400, "BadRequest", "exceeded max depth")
	c.mustRefuse(t, post(path, deep(`{"a":`, `1}`, 2500)[:20]+deep("[", "]", 20000)), 400, "BadRequest", "")
	c.mustRefuse(t, post(path, deep("[", "]", 1<<20)), 413, "RequestEntityTooLarge", "objects and lists")
	yaml := call{method: "POST", path: path, contentType: "application/yaml"}
	yaml.body = []byte("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c " +
		"[*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f " +
		"[*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n")
	c.mustRefuse(t, yaml, 413, "RequestEntityTooLarge", "limit is 3145728")
	yaml.body = []byte(strings.Repeat("[", 1<<20))
	c.mustRefuse(t, yaml, 400, "BadRequest", "")
	cborDeep := call{method: "POST", path: path, contentType: cborType, body: []byte(strings.Repeat("\x81", 1<<20))}
	c.mustRefuse(t, cborDeep, 400, "BadRequest", "")
}

// The server disconnects clients that send slowly, and other clients do not wait for them.
// Proves S11.
func TestSlowClientsAreDisconnected(t *testing.T) {
	s := startServer(t, openStore(t))
	c := s.clientFor(t, certs.Admin())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca.Cert)
	var all sync.WaitGroup
	for _, protocol := range []string{"http/1.1", "h2"} {
		for range 50 {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"),
				&tls.Config{RootCAs: roots, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13})
			if err != nil {
				t.Fatal(err)
			}
			started := time.Now()
			text := "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Slow: "
			if protocol == "h2" {
				text = "PRI * HTTP/2.0\r\n"
			}
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer conn.Close()
				ended := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, conn)
					ended <- err
				}()
				drip := time.NewTicker(500 * time.Millisecond)
				defer drip.Stop()
				for {
					select {
					case <-ended:
						if took := time.Since(started); took > 40*time.Second {
							t.Errorf("%s: let go after %s", protocol, took)
						}
						return
					case <-drip.C:
						if protocol == "http/1.1" {
							_, _ = io.WriteString(conn, "x") // fails when the server has closed the connection
						}
					case <-time.After(45 * time.Second):
						t.Errorf("%s: a slow client is kept", protocol)
						return
					}
				}
			})
		}
	}
	for range 20 {
		started := time.Now()
		c.mustAnswer(t, 200, get("/api/v1/namespaces"))
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("a request took %s meanwhile", took)
		}
	}
	all.Wait()
}

// Idle watches cost little, and an event reaches all of them.
// Proves S11.
func TestTenThousandIdleWatchesCostLittle(t *testing.T) {
	const watches, most = 10000, 48 << 10 // bytes for a watch, including the client's part
	s := startServer(t, openStore(t))
	admin := s.clientFor(t, certs.Admin())
	admin.createNamespace(t, "idle")
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := heap()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	seen := make(chan error, watches)
	var started atomic.Int64
	version := admin.mustAnswer(t, 200, get("/api/v1/namespaces/idle/configmaps")).textAt("metadata.resourceVersion")
	for range watches / 200 {
		c := s.clientFor(t, certs.Admin()) // a separate connection
		c.http.Timeout = 0
		all.Go(func() {
			for range 200 {
				resp, err := c.request(ctx, get("/api/v1/namespaces/idle/configmaps?watch=1&resourceVersion=%s",
					version))
				if err != nil {
					seen <- fmt.Errorf("begin a watch: %w", err)
					continue
				}
				started.Add(1)
				all.Go(func() {
					defer resp.Body.Close()
					line, err := bufio.NewReaderSize(resp.Body, 512).ReadString('\n')
					if err == nil && !strings.HasPrefix(line, `{"type":"ADDED"`) {
						err = fmt.Errorf("event %.100q", line)
					}
					seen <- err
				})
			}
		})
	}
	eventually(t, func() error {
		if n := started.Load(); n < watches {
			return fmt.Errorf("%d of %d watches have begun", n, watches)
		}
		return nil
	})
	used := (heap() - before) / watches
	t.Logf("%d bytes for a watch", used)
	if used > most {
		t.Errorf("%d bytes for a watch, want at most %d", used, most)
	}
	admin.mustAnswer(t, 201, post("/api/v1/namespaces/idle/configmaps", object{"metadata": object{"name": "a"}}))
	deadline := time.After(time.Minute)
	for i := range watches {
		select {
		case err := <-seen:
			if err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("%d of %d watches got the event", i, watches)
		}
	}
	cancel()
	all.Wait()
}
