package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/dashboard"
)

func set(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func without(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Del(name) }
}

func TestCodesSignInOnceWithinAMinute(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	code := w.board.NewCode()
	b := w.browser()
	got := b.do(http.MethodGet, "/signin?code="+code, "")
	if got.StatusCode != http.StatusOK || b.cookie() == nil || !strings.Contains(got.text, `url=/`) {
		t.Fatalf("a new code: %s %s", got.Status, got.text)
	}
	set := got.Header.Get("Set-Cookie")
	if !strings.Contains(set, "; HttpOnly") || !strings.Contains(set, "; SameSite=Strict") ||
		!strings.Contains(set, "; Path=/") || strings.Contains(set, "Secure") || strings.Contains(set, "Domain") {
		t.Errorf("the cookie: %s", set)
	}
	if user := b.readSession()["user"]; user != "admin" {
		t.Errorf("the user is %v", user)
	}
	second := w.browser()
	if got := second.do(http.MethodGet, "/signin?code="+code, ""); got.StatusCode != http.StatusUnauthorized ||
		second.cookie() != nil {
		t.Errorf("a used code: %s", got.Status)
	}
	lateCode := w.board.NewCode()
	w.advance(time.Minute)
	if got := second.do(http.MethodGet, "/signin?code="+lateCode, ""); got.StatusCode != http.StatusUnauthorized ||
		second.cookie() != nil {
		t.Errorf("a code after a minute: %s", got.Status)
	}
	page := second.do(http.MethodGet, "/signin?code=wrong", "", func(r *http.Request) {
		r.Header.Set("Accept", "text/html,*/*")
	})
	if page.StatusCode != http.StatusSeeOther || page.Header.Get("Location") != "/signin?error=invalid" {
		t.Errorf("a browser with a wrong code: %s %s", page.Status, page.Header.Get("Location"))
	}
	if got := second.do(http.MethodGet, "/signin", ""); got.StatusCode != http.StatusOK ||
		!strings.Contains(got.text, "clusterctl dashboard") {
		t.Errorf("the page for signing in: %s %s", got.Status, got.text)
	}
}

func TestSessionsAreNotFixed(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	chosen := &http.Cookie{Name: "clusterctl-dashboard-1", Value: "chosen-by-an-attacker"}
	b := w.browser()
	with := func(r *http.Request) { r.AddCookie(chosen) }
	if got := b.do(http.MethodGet, "/signin?code="+w.board.NewCode(), "", with); got.StatusCode != http.StatusOK {
		t.Fatalf("sign in: %s", got.Status)
	}
	if b.cookie().Value == chosen.Value {
		t.Error("the session has an ID that the client chose")
	}
	if got := w.browser().do(http.MethodGet, "/api/session", "", with); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("the chosen ID: %s", got.Status)
	}
	before := *b.cookie()
	b.do(http.MethodGet, "/signin?code="+w.board.NewCode(), "")
	if b.cookie().Value == before.Value {
		t.Error("the second session has the ID of the first")
	}
	old := w.browser().do(http.MethodGet, "/api/session", "", func(r *http.Request) { r.AddCookie(&before) })
	if old.StatusCode != http.StatusUnauthorized {
		t.Errorf("the first session is still valid: %s", old.Status)
	}
}

func TestSessionsEndAfterSomeTimeAndBySigningOut(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	idle, busy, leaves := w.signInByCode(), w.signInByCode(), w.signInByCode()
	if got := leaves.do(http.MethodPost, "/signout", ""); got.StatusCode != http.StatusNoContent {
		t.Errorf("sign out: %s %s", got.Status, got.text)
	}
	if got := leaves.do(http.MethodGet, "/api/session", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("after signing out: %s", got.Status)
	}
	for range 25 { // 12 and a half hours
		w.advance(29 * time.Minute)
		if got := busy.do(http.MethodGet, "/api/session", ""); got.StatusCode != http.StatusOK {
			break
		}
	}
	if got := busy.do(http.MethodGet, "/api/session", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("after 12 hours: %s", got.Status)
	}
	if got := idle.do(http.MethodGet, "/api/session", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("an idle session: %s", got.Status)
	}
	if got := idle.do(http.MethodGet, "/p/pods", ""); got.StatusCode != http.StatusSeeOther ||
		got.Header.Get("Location") != "/signin" {
		t.Errorf("a page without a session: %s", got.Status)
	}
}

func TestIdleSessionsEndAfterHalfAnHour(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.signInByCode()
	w.advance(29 * time.Minute)
	if got := b.do(http.MethodGet, "/api/session", ""); got.StatusCode != http.StatusOK {
		t.Errorf("after 29 minutes: %s", got.Status)
	}
	w.advance(30 * time.Minute)
	got := b.do(http.MethodGet, "/api/session", "")
	if got.StatusCode != http.StatusUnauthorized || !strings.Contains(got.text, `"kind":"Status"`) ||
		!strings.Contains(got.text, `"code":401`) {
		t.Errorf("after 30 minutes: %s %s", got.Status, got.text)
	}
}

func TestUsersHaveAtMostTwentySessions(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	first := w.signInByCode()
	for range 20 {
		w.advance(time.Millisecond)
		w.signInByCode()
	}
	if got := first.do(http.MethodGet, "/api/session", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session that was idle longest: %s", got.Status)
	}
}

func TestVisitorsSignInWithTheirTokens(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	reader := w.signInByToken(" Bearer " + readerToken + "\n")
	session := reader.readSession()
	if session["user"] != "reader" || session["signIn"] != "token" || session["cluster"] != "test" {
		t.Errorf("the session: %v", session)
	}
	admin := w.signInByToken(adminToken)
	if user := admin.readSession()["user"]; user != "admin" {
		t.Errorf("the other visitor is %v", user)
	}
	for _, token := range []string{"wrong", "", "a b", "a\x00b", "ü", strings.Repeat("x", 100<<10)} {
		b := w.browser()
		if got := b.sendToken(token); got.StatusCode < 400 || b.cookie() != nil {
			t.Errorf("the token %.10q: %s", token, got.Status)
		}
	}
	b := w.browser()
	html := set("Accept", "text/html")
	if got := b.sendToken("wrong", html); got.Header.Get("Location") != "/signin?error=invalid" {
		t.Errorf("a browser with a wrong token is sent to %q", got.Header.Get("Location"))
	}
	if got := b.do(http.MethodGet, "/signin?code="+w.board.NewCode(), ""); b.cookie() != nil {
		t.Errorf("a code signs in where tokens do: %s", got.Status)
	}
	if got := b.sendToken(readerToken, set("Origin", "http://evil.example")); got.StatusCode != http.StatusForbidden {
		t.Errorf("another site signs a visitor in: %s", got.Status)
	}
	if got := b.sendToken(readerToken, set("Origin", "null"), set("Sec-Fetch-Site", "same-origin")); b.cookie() == nil {
		t.Errorf("a form of a page without a referrer: %s", got.Status)
	}
	if text := w.log.String(); strings.Contains(text, readerToken) || strings.Contains(text, adminToken) ||
		!strings.Contains(text, "user=reader") {
		t.Errorf("the log: %s", text)
	}
	if w.browser().do(http.MethodGet, "/signin", "").StatusCode != http.StatusOK {
		t.Error("the page for signing in is not served")
	}
}

func TestCommandsAcceptNoTokens(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.browser()
	if got := b.sendToken(readerToken); got.StatusCode != http.StatusForbidden || b.cookie() != nil {
		t.Errorf("a token: %s", got.Status)
	}
}

func TestSignInFailsWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	w.api.Host = "https://127.0.0.1:1"
	w.serve(w.api, dashboard.SignInByToken)
	b := w.browser()
	if got := b.sendToken(readerToken); got.StatusCode != http.StatusServiceUnavailable || b.cookie() != nil {
		t.Errorf("sign in: %s %s", got.Status, got.text)
	}
	if got := b.sendToken(readerToken, set("Accept", "text/html")); got.Header.Get("Location") !=
		"/signin?error=unavailable" {
		t.Errorf("a browser is sent to %q", got.Header.Get("Location"))
	}
	if strings.Contains(w.log.String(), readerToken) {
		t.Error("the token is in the log")
	}
}
