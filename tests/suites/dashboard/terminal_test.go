package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// waitScreen waits until the terminal contains a text.
func (p *tab) waitScreen(text string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("%q in the terminal", text), `document.querySelector('.terminal')?.innerText.includes(`+
		quote(text)+`)`)
}

// Proves S34.
func TestATerminalRunsCommandsInAContainer(t *testing.T) {
	api, over := startStub(t)
	p := openTab(t, over, "/p/object/core/v1/pods/shop/db-0?tab=terminal")
	p.waitScreen("$")
	q := api.last()
	if q.Get("container") != "app" || q.Get("tty") != "true" || q.Get("stdin") != "true" || q.Get("stdout") != "true" ||
		!slices.Equal(q["command"][:2], []string{"sh", "-c"}) {
		t.Errorf("the request is %v", q)
	}
	p.keys("size\r")
	p.wait("a size", `/\d+x\d+/.test(document.querySelector('.terminal').innerText)`)
	size := evaluate[string](p, `/\d+x\d+/.exec(document.querySelector('.terminal').innerText)[0]`)
	rows := evaluate[int](p, `document.querySelectorAll('.vt-screen .vt-row').length`)
	if !strings.HasSuffix(size, fmt.Sprintf("x%d", rows)) || rows < 20 {
		t.Errorf("the program's size is %s, and the screen has %d rows", size, rows)
	}
	p.keys("split\r")
	p.waitScreen("€100")
	p.keys("colors\r")
	p.waitScreen("bold red green blue inverse")
	if !evaluate[bool](p, `document.querySelector('.vt-bold.fg-9')?.textContent === 'bold red' &&
		[...document.querySelectorAll('.vt-row span')].some((e) => e.textContent === 'green' &&
			getComputedStyle(e).color === 'rgb(95, 255, 0)') &&
		[...document.querySelectorAll('.vt-row span')].some((e) => e.textContent === 'blue' &&
			getComputedStyle(e).backgroundColor === 'rgb(10, 20, 200)') &&
		getComputedStyle(document.querySelector('.vt-inverse')).color === 'rgb(18, 22, 27)'`) {
		t.Error("the colours are wrong")
	}
	p.picture("terminal-light")
	p.checkContrast("the terminal")
	p.keys("editor\r")
	p.waitScreen("EDITOR")
	if !evaluate[bool](p, `document.querySelectorAll('.vt-row').length > 5 &&
		document.querySelectorAll('.vt-screen .vt-row')[2].textContent.startsWith('    in the middle') &&
		!document.querySelector('.vt-screen').textContent.includes('welcome')`) {
		t.Error("the alternate screen is wrong")
	}
	p.keys("quit\r")
	p.waitScreen("welcome")
	p.keys("many\r")
	p.waitScreen("row 0\n")
	p.waitScreen("row 499")
	p.wait("the end to be visible", `(() => { const e = document.querySelector('.terminal');
		return e.scrollTop + e.clientHeight >= e.scrollHeight - 30; })()`)
	p.keys(kb.ArrowUp)
	p.waitScreen("^[[A")
	p.do(chromedp.EmulateViewport(700, 500))
	p.wait("fewer rows", fmt.Sprintf(`document.querySelectorAll('.vt-screen .vt-row').length < %d`, rows))
	p.keys("\rsize\r")
	p.wait("the new size", fmt.Sprintf(`!document.querySelector('.vt-screen').innerText.includes(%s) &&
		/\d+x\d+/.test(document.querySelector('.vt-screen').innerText)`, quote(size)))
	p.do(chromedp.ResetViewport())
	p.keys("exit\r")
	p.waitText("The shell has ended with exit code 3.")
	p.click("button", "Connect again")
	p.waitScreen("welcome")
	p.pressControl("]", "BracketRight", 221)
	p.wait("the focus to leave the terminal", `document.activeElement.matches('[role=tab]')`)
}

// pressControl presses a key together with Control.
func (p *tab) pressControl(key, code string, virtual int64) {
	p.t.Helper()
	p.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown,
			input.DispatchKeyEventTypeKeyUp} {
			_, err := cdp.Call(ctx, target, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key,
				Code: code, WindowsVirtualKeyCode: virtual, Modifiers: 2})
			if err != nil {
				return chromedp.Void{}, err
			}
		}
		return chromedp.Void{}, nil
	})
}

// Proves S34.
func TestALogIsFollowedSearchedAndReadFromTheFormerContainer(t *testing.T) {
	api, over := startStub(t)
	p := openTab(t, over, "/p/object/core/v1/pods/shop/db-0?tab=logs")
	p.waitText("line 9 of app")
	p.waitText("red and <script>window.attacked")
	if evaluate[bool](p, `window.attacked === true || document.body.innerText.includes('\x1b')`) {
		t.Error("a log is more than text")
	}
	select {
	case api.more <- "a new line":
	case <-t.Context().Done():
	}
	p.waitText("a new line")
	p.replace(".filter", "LINE 7")
	p.waitText("1 of 1 found")
	p.picture("logs-light")
	p.checkContrast("the log")
	p.click("button", "Only matches")
	p.wait("only the match", `[...document.querySelectorAll('.log .line')].filter((e) => !e.hidden).length === 1`)
	p.click("button", "Only matches")
	p.replace(".filter", "")
	p.wait("all lines", `[...document.querySelectorAll('.log .line')].filter((e) => !e.hidden).length === 12`)
	p.click("button", "Timestamps")
	p.waitText("2026-01-02T03:04:05Z line 3 of app")
	p.click("button", "Previous")
	p.waitText("former 3 of app")
	if q := api.last(); q.Get("follow") != "" || q.Get("previous") != "true" || q.Get("tailLines") == "" {
		t.Errorf("the request is %v", q)
	}
}
