package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

const (
	chromiumPath = "/usr/bin/chromium"
	actionTime   = 30 * time.Second // of one action in the browser
)

// startChromium starts the browser that all tests share.
func startChromium() (stop func(), err error) {
	profile, err := os.MkdirTemp(workDir, "profile-")
	if err != nil {
		return nil, err
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(chromiumPath), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.UserDataDir(profile), chromedp.WindowSize(1280, 800),
		chromedp.IgnoreCertErrors, // the dashboard's daemon has a self-signed certificate
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := chromedp.NewContext(allocator)
	stop = func() {
		cancel()
		stopAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("start Chromium (Debian's package chromium): %w", err)
	}
	chromium = ctx
	return stop, nil
}

// tab is a tab of the browser with cookies of its own. A message of the console about a problem, a script that fails,
// and a violation of the content security policy fail the test.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	expected []string // parts of messages that the test provokes
	problems []string
}

// newTab opens a tab that is not signed in.
func newTab(t *testing.T, base string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx, base: base}
	messages := chromedp.Console(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for message, err := range messages {
			if err != nil {
				return
			}
			p.record(message)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Errorf("the console reports: %s", problem)
		}
	})
	p.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		script := page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			document.addEventListener('securitypolicyviolation', (event) =>
				console.error('content security policy: ' + event.violatedDirective + ' ' + event.blockedURI));`}
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, script)
		return chromedp.Void{}, err
	})
	return p
}

// openTab opens a tab that is signed in, at a page.
func openTab(t *testing.T, s *server, address string) *tab {
	t.Helper()
	link, err := s.link()
	if err != nil {
		t.Fatal(err)
	}
	p := newTab(t, s.base)
	p.do(chromedp.Navigate(link))
	p.wait("the overview after signing in", `location.pathname === '/' && document.querySelector('h1')`)
	if address != "/" {
		p.open(address)
	}
	return p
}

// record keeps a message of the console that is a problem.
func (p *tab) record(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleWarning && !m.IsException() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.expected {
		if strings.Contains(m.Text+" "+m.URL, part) {
			return
		}
	}
	p.problems = append(p.problems, fmt.Sprintf("%s (%s:%d)", m, m.URL, m.Line+1))
}

// expect allows messages of the console that contain a text.
func (p *tab) expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, part)
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, actionTime)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// open loads a page of the dashboard.
func (p *tab) open(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + address))
	p.wait("the frame of "+address, `document.querySelector('main')?.childElementCount > 0`)
}

// evaluate returns the value of an expression in the page. Promises are awaited.
func evaluate[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, actionTime)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return value
}

// wait waits until an expression in the page is true. An expression that fails, as while another page loads, is tried
// again.
func (p *tab) wait(what, condition string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, actionTime)
	defer cancel()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		isTrue, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if isTrue && err == nil {
			return
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		p.picture("failed-" + strings.ReplaceAll(p.t.Name(), "/", "-"))
		p.t.Fatalf("%s: not within %s (%v), at %s:\n%s", what, actionTime, err,
			evaluate[string](p, "location.href"), p.text())
	}
}

// waitText waits until the text of the page contains a text.
func (p *tab) waitText(text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("the text %q", text), "document.body.innerText.includes("+quote(text)+")")
}

// text returns the visible text of the page.
func (p *tab) text() string {
	p.t.Helper()
	return evaluate[string](p, "document.body.innerText")
}

// element is a JavaScript expression for the first visible element of a selector with a text; empty: any text.
func element(selector, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%s)].find((e) => e.getClientRects().length > 0 &&
		(%s === '' || e.textContent.trim() === %[2]s || e.getAttribute('aria-label') === %[2]s))`, quote(selector),
		quote(text))
}

// click clicks on the middle of an element, like a user: it must be enabled, and nothing may cover it.
func (p *tab) click(selector, text string) {
	p.t.Helper()
	found := element(selector, text)
	p.wait(fmt.Sprintf("%s %q to click", selector, text), fmt.Sprintf(`(() => {
		const e = %s;
		if (!e || e.disabled) return false;
		e.scrollIntoView({block: 'nearest', inline: 'nearest'});
		const box = e.getBoundingClientRect();
		const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
		return top && (e.contains(top) || top.contains(e));
	})()`, found))
	at := evaluate[[]float64](p, fmt.Sprintf(`(() => {
		const box = %s.getBoundingClientRect();
		return [box.x + box.width / 2, box.y + box.height / 2];
	})()`, found))
	p.do(chromedp.MouseClickXY(at[0], at[1]))
}

// has reports whether an element is visible.
func (p *tab) has(selector, text string) bool {
	p.t.Helper()
	return evaluate[bool](p, "Boolean("+element(selector, text)+")")
}

// keys presses keys, one after the other.
func (p *tab) keys(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys, options...))
}

// replace empties a field and types a text into it.
func (p *tab) replace(selector, text string) {
	p.t.Helper()
	p.wait(selector+" to type into", element(selector, ""))
	evaluate[bool](p, fmt.Sprintf(`(() => { const e = %s; e.focus(); e.select(); return true; })()`,
		element(selector, "")))
	if text == "" {
		p.keys("\b")
		return
	}
	p.keys(text)
}

// scheme sets the system's colours: light or dark.
func (p *tab) scheme(name string) {
	p.t.Helper()
	p.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		return chromedp.Void{}, err
	})
}

// checkContrast fails the test if a text of the page has a low contrast in light or dark colours. It leaves the light
// ones.
func (p *tab) checkContrast(what string) {
	p.t.Helper()
	for _, scheme := range []string{"dark", "light"} {
		p.scheme(scheme)
		if low := evaluate[[]string](p, lowContrast); len(low) > 0 {
			p.t.Errorf("%s, %s: the contrast is below AA:\n%s", what, scheme, strings.Join(low, "\n"))
		}
	}
}

// picture writes a picture of the page, if pictures are wanted.
func (p *tab) picture(name string) {
	p.t.Helper()
	if screenshots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, actionTime)
	defer cancel()
	data, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.MkdirAll(screenshots, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(screenshots, name+".png"), data, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// quote returns a text as a JavaScript literal.
func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err) // texts can be encoded
	}
	return string(data)
}
