package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/chromedp/chromedp"

	"clusterctl/daemons/config"
	"clusterctl/daemons/dashboard"
	"clusterctl/daemons/run"
)

// startDaemon serves the dashboard's daemon, and returns its address.
func startDaemon(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultDashboard()
	cfg.Kubeconfig, cfg.Hostnames, cfg.HealthAddress = admin, []string{"127.0.0.1"}, ""
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- dashboard.RunWith(ctx, cfg, run.NewEnv(slog.New(slog.DiscardHandler)), listener)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return "https://" + listener.Addr().String()
}

// Proves S34.
func TestAVisitorOfTheDaemonSignsInWithAToken(t *testing.T) {
	token, err := createToken(t.Context(), "visitor", "view")
	if err != nil {
		t.Fatal(err)
	}
	p := newTab(t, startDaemon(t))
	p.do(chromedp.Navigate(p.base + "/p/pods?ns=shop"))
	p.wait("the page for signing in", `location.pathname === '/signin' && document.querySelector('#token')`)
	p.picture("signin-token-light")
	enter := func(token string) {
		t.Helper()
		evaluate[bool](p, fmt.Sprintf(`(() => { document.querySelector('#token').value = %s; return true; })()`,
			quote(token)))
		p.click("button", "Sign in")
	}
	enter("not-a-token")
	p.waitText("is not valid")
	enter(token)
	p.wait("the overview", `location.pathname === '/' && document.querySelector('h1')?.textContent === 'Overview'`)
	p.open("/p/pods?ns=shop")
	p.waitText("db-0")
	p.waitText("system:serviceaccount:default:visitor")
	p.click("button", "Sign out")
	p.wait("the page for signing in", `location.pathname === '/signin' && document.querySelector('#token')`)
}
