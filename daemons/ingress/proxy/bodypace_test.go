package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"clusterctl/daemons/ingress/route"
)

// startCountingBackend starts a backend that signals every byte of a body, and responds at its end.
func startCountingBackend(t *testing.T) (address string, seen chan struct{}) {
	seen = make(chan struct{}, 1)
	done := make(chan struct{})
	address = startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		b := make([]byte, 1)
		for {
			n, err := r.Body.Read(b)
			if n > 0 {
				select {
				case seen <- struct{}{}:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { close(done) })
	return address, seen
}

// slowBody is a body that delivers the next byte when the backend has seen the previous one.
type slowBody struct {
	remaining int
	seen      <-chan struct{}
	sent      bool
	closed    chan struct{}
	once      sync.Once
}

func newSlowBody(n int, seen <-chan struct{}) *slowBody {
	return &slowBody{remaining: n, seen: seen, closed: make(chan struct{})}
}

func (d *slowBody) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *slowBody) Read(p []byte) (int, error) {
	if d.sent {
		select {
		case <-d.seen:
		case <-d.closed:
			return 0, io.ErrUnexpectedEOF
		}
	}
	if d.remaining == 0 {
		return 0, io.EOF
	}
	d.remaining--
	d.sent = true
	p[0] = 'x'
	return 1, nil
}

// Each piece of these bodies is in time, but a complete body would take forever.
// Proves S32.
func TestBodiesThatArriveTooSlowlyAreEnded(t *testing.T) {
	for _, way := range protocolPairs {
		for _, length := range []int64{spliceSize - 1, spliceSize + 1, -1} {
			t.Run(fmt.Sprint(way.name, " ", length), func(t *testing.T) {
				p := startProxy(t, nil)
				address, seen := startCountingBackend(t)
				p.setRule(&route.Rule{
					Policy: &route.Policy{
						Connect: 5 * time.Second,
						Read:    30 * time.Second,
						Send:    100 * time.Millisecond,
						MinRate: 1 << 30,
					},
					Backends: []route.Weighted{{Backend: p.backendAt("slow", address), Weight: 1}},
				})
				r, err := http.NewRequest("POST", way.scheme+"://a.example/shop", newSlowBody(1<<30, seen))
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = length
				res, err := p.newClient(way.protocols...).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if res.StatusCode != http.StatusRequestTimeout {
					t.Errorf("status %d", res.StatusCode)
				}
			})
		}
	}
}

func TestBodiesAboveTheMinimumRateAreForwarded(t *testing.T) {
	for _, minimum := range []int64{0, 1} {
		for _, way := range protocolPairs {
			p := startProxy(t, nil)
			address, seen := startCountingBackend(t)
			p.setRule(&route.Rule{
				Policy: &route.Policy{
					Connect: 5 * time.Second,
					Read:    30 * time.Second,
					Send:    10 * time.Second,
					MinRate: minimum,
				},
				Backends: []route.Weighted{{Backend: p.backendAt("slow", address), Weight: 1}},
			})
			res, err := p.newClient(way.protocols...).Post(way.scheme+"://a.example/shop", "", newSlowBody(300, seen))
			if readBody(t, res, err); res.StatusCode != http.StatusOK {
				t.Errorf("%s, %d bytes in a second: status %d", way.name, minimum, res.StatusCode)
			}
		}
	}
}

func TestBodyPaceCountsOnlyTheTimeSpentWaiting(t *testing.T) {
	p := bodyPace{wait: time.Minute, minRate: 500}
	for _, step := range []struct {
		came   int64
		waited time.Duration
		within time.Duration
	}{
		{0, 0, time.Minute},
		{10, 30 * time.Second, 30*time.Second + 20*time.Millisecond},
		{490, 30 * time.Second, time.Second},
		{1 << 20, time.Second, time.Minute}, // the limit of a piece is one minute
		{1 << 62, 0, time.Minute},
		{0, 1000 * 24 * time.Hour, time.Minute},
	} {
		p.count(step.came, step.waited)
		if got := p.timeLeft(); got != step.within {
			t.Errorf("after %d bytes in %s: %s, want %s", p.received, p.waited, got, step.within)
		}
	}
	slow := bodyPace{wait: time.Minute, minRate: 500}
	if slow.count(60, time.Minute); slow.timeLeft() >= time.Second {
		t.Errorf("a byte a second has %s more", slow.timeLeft())
	}
	if slow.count(1, time.Minute); slow.timeLeft() != 0 {
		t.Errorf("a late one has %s more", slow.timeLeft())
	}
}

// One client cannot use all connections. Others are served.
// Proves S32.
func TestAClientIsLimitedToItsShareOfConnections(t *testing.T) {
	const maximum = 20
	p := startProxy(t, func(c *Config) { c.MaxConns, c.ClientShare = maximum, 50 })
	waits, requested := make(chan struct{}), make(chan struct{}, maximum)
	p.addRoute("a.example", "/", []string{startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			requested <- struct{}{}
			<-waits
		}
	})})
	defer close(waits)
	from := func(address string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
		nc, err := d.Dial("tcp", p.plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		return nc
	}
	for range maximum / 2 {
		nc := from("127.0.0.2")
		if _, err := io.WriteString(nc, "GET /slow HTTP/1.1\r\nHost: a.example\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-requested
	}
	if !isClosed(t, from("127.0.0.2")) {
		t.Error("a client has more than its share")
	}
	if err := sendGet(from("127.0.0.3"), "/"); err != nil {
		t.Errorf("another client: %v", err)
	}
	if got := p.e.counters.refusedConns.Load(); got != 1 {
		t.Errorf("%d connections are counted as refused", got)
	}
}

// At its limit, a client loses its own idle connections first.
func TestAClientAtItsLimitLosesItsOwnIdleConnection(t *testing.T) {
	const maximum = 8
	p := startProxy(t, func(c *Config) { c.MaxConns, c.ClientShare = maximum, 50 })
	p.addRoute("a.example", "/", []string{startBackend(t, func(http.ResponseWriter, *http.Request) {})})
	var all []net.Conn
	for range maximum / 2 {
		nc := connect(t, p.plain)
		if err := sendGet(nc, "/"); err != nil {
			t.Fatal(err)
		}
		all = append(all, nc)
	}
	if err := sendGet(connect(t, p.plain), "/"); err != nil {
		t.Fatal(err)
	}
	if !isClosed(t, all[0]) {
		t.Error("the one that waited longest stays")
	}
	if err := sendGet(all[3], "/"); err != nil {
		t.Errorf("another one of its own: %v", err)
	}
}

func TestClientsAreCountedByIPv6Network(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::",
		"fe80::1%eth0": "fe80::",
	} {
		if got := clientNetwork(netip.MustParseAddr(a)); got.String() != want {
			t.Errorf("%s is of %s, want %s", a, got, want)
		}
	}
}

func TestLimitsFollowTheNumberOfDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want limits
	}{
		"any": {Config{}, limits{}},
		"enough": {Config{MaxConns: 8192, ClientShare: 10, Descriptors: 1 << 20},
			limits{8192, 819, 32768, 3276, 1<<20 - 1024 - 8192 - 32768}},
		"few":     {Config{MaxConns: 8192, ClientShare: 10, Descriptors: 4096}, limits{1024, 102, 1536, 153, 512}},
		"no more": {Config{Descriptors: 4096}, limits{1024, 0, 1536, 0, 512}},
	} {
		got := limitsOf(&c.cfg)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if n := c.cfg.Descriptors; n > 0 && int64(got.conns)+got.calls+got.idle > int64(n) {
			t.Errorf("%s: %+v is more than %d descriptors", name, got, n)
		}
	}
}

// The limit of forwarded requests also applies to those on one HTTP/2 connection.
func TestForwardedRequestsAreLimited(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.MaxConns, c.ClientShare = 4, 75 })
	waits, requested := make(chan struct{}), make(chan struct{}, 100)
	p.addRoute("a.example", "/", []string{startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		requested <- struct{}{}
		<-waits
	})})
	client := p.newClient("h2c")
	results := make(chan int, 100)
	ask := func() {
		res, err := client.Get("http://a.example/")
		if err != nil {
			results <- 0
			return
		}
		res.Body.Close()
		results <- res.StatusCode
	}
	for range 12 { // three quarters of four per connection
		go ask()
		<-requested
	}
	go ask()
	if got := <-results; got != http.StatusTooManyRequests {
		t.Errorf("one more of a client with its share: %d", got)
	}
	close(waits)
	for range 12 {
		if got := <-results; got != http.StatusOK {
			t.Errorf("one that was passed on: %d", got)
		}
	}
	eventually(t, "requests that have ended are still counted", func() bool { return p.e.activeCalls.Load() == 0 })
	nc := connect(t, p.plain)
	if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %v, %v", res, err)
	}
}
