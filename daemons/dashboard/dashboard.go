// Package dashboard serves the cluster's web pages and the API behind them. Every request to the API server has the
// credentials of the visitor; the dashboard has no rights of its own. The pages are in package web, and the tables of
// the pages in package table.
package dashboard

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"clusterctl/daemons/dashboard/web"
)

// SignIn is how visitors sign in.
type SignIn string

const (
	// SignInByCommand means that a command opens the dashboard with a code that can be used once. All visitors have the
	// credentials of the command.
	SignInByCommand SignIn = "command"
	// SignInByToken means that visitors send a bearer token of their own.
	SignInByToken SignIn = "token"
)

// Config is the configuration of a dashboard.
type Config struct {
	// API is how to reach the API server. With SignInByCommand it has the credentials of all visitors; with
	// SignInByToken it has none.
	API     *rest.Config
	SignIn  SignIn
	Cluster string // name of the cluster, for visitors
	// AllowHost reports whether a Host header names this server. Requests for other hosts are refused, so that pages
	// whose DNS name is changed to this server's address cannot reach it.
	AllowHost func(host string) bool
	TLS       bool // visitors use HTTPS
	// CookieSuffix is added to the name of the cookie. Browsers send cookies to all ports of a host, so several
	// dashboards on one host need different names.
	CookieSuffix string
	Log          *slog.Logger
	Now          func() time.Time // nil means time.Now
}

// Dashboard is the HTTP handler of the pages and their API. Use New to create one, and Run to end its sessions in time.
type Dashboard struct {
	config   Config
	sessions *sessions
	codes    *codes
	signIns  *signInLimit
	routes   *http.ServeMux
}

// MemoryGrowth is how much memory the process may use besides what is in use, in percent, before garbage is collected.
// Most of the memory is tables, which live long.
const MemoryGrowth = 40

// New returns a dashboard.
func New(config Config) *Dashboard {
	if config.Now == nil {
		config.Now = time.Now
	}
	d := &Dashboard{
		config: config, sessions: newSessions(config.Now), codes: newCodes(config.Now), signIns: newSignInLimit(),
		routes: http.NewServeMux(),
	}
	pages := newStaticFiles(web.Files)
	d.routes.Handle("GET /signin", d.serveSignIn(pages))
	d.routes.HandleFunc("POST /signin", d.signInByToken)
	d.routes.Handle("POST /signout", d.withSession(d.signOut))
	d.routes.Handle("GET /app/", pages)
	d.routes.Handle("GET /{$}", d.withPage(pages.page("index.html")))
	d.routes.Handle("GET /p/", d.withPage(pages.page("index.html")))
	d.routes.Handle("GET /api/session", d.withSession(d.describeSession))
	d.routes.Handle("GET /api/kinds", d.withSession(serveJSON(listKinds)))
	d.routes.Handle("POST /api/access", d.withSession(serveAccess))
	d.routes.Handle("GET /api/overview", d.withSession(serveJSON(readOverview)))
	d.routes.Handle("GET /api/nodes", d.withSession(serveJSON(d.listNodes)))
	d.routes.Handle("GET /api/why", d.withSession(explain))
	d.routes.Handle("GET /api/certificates", d.withSession(serveJSON(d.listCertificates)))
	d.routes.Handle("GET /api/etcd", d.withSession(serveJSON(listEtcd)))
	d.routes.Handle("GET /api/metrics", d.withSession(servePlots))
	d.routes.Handle("GET /api/live", d.withSession(d.serveLive))
	d.routes.Handle("/k8s/", d.withSession(d.proxy))
	d.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, errNotFound(r.URL.Path))
	})
	return d
}

// sweepInterval is how often sessions that are over are ended.
const sweepInterval = 30 * time.Second

// Run ends sessions when their time is over, and all sessions when ctx ends. It returns when ctx ends.
func (d *Dashboard) Run(ctx context.Context) {
	defer d.sessions.endAll()
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.sessions.sweep()
		}
	}
}

// NewCode returns a code with which one visitor can sign in, once and soon.
func (d *Dashboard) NewCode() string { return d.codes.issue(false) }

// NewLocalCode is like NewCode, for a process of this machine that has the user of this process. Other users can read
// the arguments of the program that opens a browser, so that a code in them must be of no use to them.
func (d *Dashboard) NewLocalCode() string { return d.codes.issue(true) }

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header(), d.config.TLS)
	if !d.config.AllowHost(r.Host) {
		writeError(w, errWrongHost(r.Host))
		return
	}
	if err := checkOrigin(r, d.config.TLS); err != nil {
		writeError(w, err)
		return
	}
	d.routes.ServeHTTP(w, r)
}
