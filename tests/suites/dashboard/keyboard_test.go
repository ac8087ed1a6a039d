package dashboard

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
)

func TestEveryPageOfTheNavigationOpensByKeys(t *testing.T) {
	p := openTab(t, board, "/")
	for keys, path := range map[string]string{"gn": "/p/nodes", "gw": "/p/workloads", "gp": "/p/pods",
		"gs": "/p/network", "gv": "/p/storage", "gc": "/p/config", "ge": "/p/events", "gg": "/p/gitops",
		"gx": "/p/certificates", "gd": "/p/etcd", "gk": "/p/kinds", "go": "/"} {
		p.keys(keys)
		p.wait("the page "+path, "location.pathname === "+quote(path))
	}
}

func TestATableIsUsedByKeysAlone(t *testing.T) {
	p := openTab(t, board, "/p/pods?ns=shop")
	p.waitText("db-0")
	p.keys("/")
	p.wait("the filter to have the focus", "document.activeElement.matches('[data-filter]')")
	p.keys("db-")
	p.wait("two pods", `document.querySelectorAll('.tbody .tr').length === 2`)
	p.keys("\r")
	p.wait("the table to have the focus", "document.activeElement.matches('.table')")
	p.keys(kb.ArrowDown + kb.ArrowDown)
	p.wait("the second row to be active", `document.querySelector('.tr.active a')?.textContent === 'db-1'`)
	p.keys(kb.ArrowUp)
	p.wait("the first row to be active", `document.querySelector('.tr.active a')?.textContent === 'db-0'`)
	p.keys("\r")
	p.wait("the page of the pod", `location.pathname.endsWith('/db-0')`)
	p.waitText("registry.example/db:15")
	p.keys("]")
	p.wait("the next tab", `new URLSearchParams(location.search).get('tab') === 'why'`)
}

func TestEscapeClosesTheHelpAndEmptiesTheFilter(t *testing.T) {
	p := openTab(t, board, "/p/pods?ns=shop")
	p.waitText("db-0")
	p.keys("?")
	p.wait("the help", "document.querySelector('dialog[open]')")
	p.picture("help-light")
	p.keys(kb.Escape)
	p.wait("the help to close", "!document.querySelector('dialog')")
	p.keys("/")
	p.keys("nothing-has-this-name")
	p.waitText("No object matches the filter.")
	p.keys(kb.Escape)
	p.waitText("db-0")
	p.keys(kb.Escape)
	p.wait("the table to have the focus", "document.activeElement.matches('.table')")
}
