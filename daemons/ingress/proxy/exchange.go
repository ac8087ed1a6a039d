package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"clusterctl/daemons/ingress/route"
)

// maxAttempts is how many endpoints are tried for one request.
const maxAttempts = 3

// handleRequest finds the rule of the current request, forwards the request to a backend, and sends the response.
func (c *conn) handleRequest() {
	q := &c.req
	c.body.reset()
	path, scratch, ok := route.PlainPath(q.path, c.scratch)
	c.scratch = scratch
	if !ok {
		c.reject(errPath.status, errPath.reason)
		return
	}
	rule := c.entry.table.Load().Find(hostname(q.host), path, c)
	c.rule = rule
	switch {
	case rule == nil:
		c.reject(404, "no route")
		return
	case c.tryRedirect(rule):
		return
	case rule.Policy.MaxBody > 0 && q.length > rule.Policy.MaxBody:
		c.reject(413, "the body is too large")
		return
	}
	if rule.Policy.Total > 0 {
		c.ruleDeadline = c.start + int64(rule.Policy.Total)
	}
	chosen := selectBackend(rule.Backends)
	p := chosen.pool()
	if p == nil {
		c.reject(missingStatus(rule), "no backend")
		return
	}
	if bad := c.e.startCall(c); bad != nil {
		c.reject(bad.status, bad.reason)
		return
	}
	defer c.e.endCall(c)
	c.requestChanges, c.responseChanges = chosen.headerChanges(rule)
	if p.h2 != nil {
		c.forwardHTTP2(rule, p)
		return
	}
	up, rest := c.sendToEndpoint(rule, p)
	if up == nil {
		return
	}
	up.endpoint.active.Add(1)
	defer up.endpoint.active.Add(-1)
	c.backend = up.endpoint
	c.sendResponse(rule, up, rest)
}

// Method, Header and Query implement route.Request.
func (c *conn) Method() string { return string(c.req.method) }

// Header returns the value of a field. Several lines are joined to one list.
func (c *conn) Header(name string) (value string, found bool) {
	for i := range c.req.fields {
		f := &c.req.fields[i]
		switch {
		case len(f.name) != len(name) || !bytes.EqualFold(f.name, []byte(name)):
		case found:
			value += ", " + string(f.value)
		default:
			value, found = string(f.value), true
		}
	}
	return value, found
}

// Query returns the value of a query parameter.
func (c *conn) Query(name string) (string, bool) { return queryValue(string(c.req.query), name) }

// selectedBackend is the selected backend of a request. The zero value means none.
type selectedBackend struct{ *route.Weighted }

// selectBackend selects one of a rule's backends by weight.
func selectBackend(all []route.Weighted) selectedBackend {
	if len(all) == 1 && all[0].Weight > 0 {
		return selectedBackend{&all[0]}
	}
	sum := 0
	for i := range all {
		sum += all[i].Weight
	}
	if sum == 0 {
		return selectedBackend{}
	}
	at := rand.IntN(sum)
	for i := range all {
		if at -= all[i].Weight; at < 0 {
			return selectedBackend{&all[i]}
		}
	}
	return selectedBackend{}
}

func (c selectedBackend) pool() *pool {
	if c.Weighted == nil || c.Backend == nil {
		return nil
	}
	p, _ := c.Backend.Targets.(*pool)
	return p
}

// headerChanges returns the header changes of the request and of the response.
func (c selectedBackend) headerChanges(rule *route.Rule) (request, response *route.Headers) {
	return cmp.Or(c.Request, rule.Filters.Request), cmp.Or(c.Response, rule.Filters.Response)
}

// missingStatus returns the status for a rule without a backend.
func missingStatus(rule *route.Rule) int { return cmp.Or(rule.Missing, 503) }

// reject sends an error response. It does not wait for the rest of the request body.
func (c *conn) reject(status int, reason string) {
	if c.req.chunked || c.req.length > 0 {
		c.ended = true
	}
	c.fail(status, reason)
}

// tryRedirect sends a redirect if the rule has one, and reports whether it did.
func (c *conn) tryRedirect(rule *route.Rule) bool {
	if rule.ToHTTPS && !c.isSecure() {
		c.sendRedirect(&route.Redirect{Scheme: "https", Port: c.e.cfg.HTTPSPort, Code: 308})
		return true
	}
	if r := rule.Filters.Redirect; r != nil {
		c.sendRedirect(r)
		return true
	}
	return false
}

// isSecure reports whether the client uses TLS, according to this connection or to a trusted proxy in front.
func (c *conn) isSecure() bool {
	if c.trusted {
		if list, ok := c.req.value("x-forwarded-proto"); ok {
			for v := range listElements(list) {
				return equalFold(v, "https") // the first value is the protocol of the original client
			}
		}
	}
	return c.secure
}

func (c *conn) sendRedirect(r *route.Redirect) {
	if c.req.chunked || c.req.length > 0 {
		c.ended = true
	}
	c.status = r.Code
	c.out = appendRedirect(c.out[:0], r, c.isSecure(), string(c.req.host), c.port, c.req.target,
		c.ended || c.req.minor == 0)
	if c.write(c.out, writeTimeout) != nil {
		c.ended = true
	}
	if c.ended {
		c.discardInput()
	}
}

// unsentBody is the part of a request body that was not sent together with the head.
type unsentBody struct {
	length  int64
	chunked bool
}

func (r unsentBody) hasData() bool { return r.chunked || r.length > 0 }

// sendToEndpoint sends the request's head and the available part of the body to an endpoint, and reads the head of the
// response. It returns nil if there is none; an error response was sent in that case.
//
// It tries another endpoint if a connection failed. It repeats the request if the connection ended without a response
// and the request may be repeated.
func (c *conn) sendToEndpoint(rule *route.Rule, p *pool) (*upstream, unsentBody) {
	c.tried = c.tried[:0]
	c.out = c.appendRequest(c.out[:0], rule)
	left, bad := c.appendBody(rule)
	if bad != nil {
		c.ended = true
		c.fail(bad.status, bad.reason)
		return nil, left
	}
	again := isRepeatable(c.req.method) && !c.req.chunked && c.req.length <= 0
	status, reason := 503, "no endpoint"
	fresh := false
	for range maxAttempts {
		ep := p.pick(c.tried, c.e.clock())
		if ep == nil && len(c.tried) > 0 && fresh {
			ep = p.pick(nil, c.e.clock())
		}
		if ep == nil {
			break
		}
		var up *upstream
		if !fresh {
			up = ep.takeIdle(!again)
		}
		if up == nil {
			var err error
			if up, err = ep.dial(rule.Policy.Connect); err != nil {
				c.tried = append(c.tried, ep)
				status, reason = 502, "no connection to the backend"
				if isTimeout(err) {
					status, reason = 504, "no connection to the backend in time"
				}
				continue
			}
		}
		err := c.roundTrip(rule, up, left)
		if err == nil {
			return up, left
		}
		silent := up.buf.w == 0 // no byte of a response arrived
		reused := up.reused
		up.close()
		var refused *statusError
		switch {
		case errors.Is(err, errClientGone):
			c.ended, c.status = true, 499
			return nil, left
		case errors.As(err, &refused):
			status, reason = refused.status, refused.reason
			if status == 502 || status == 504 {
				break
			}
			c.ended = true
			c.fail(status, reason)
			return nil, left
		case isTimeout(err):
			status, reason = 504, "the backend did not answer in time"
		default:
			status, reason = 502, "the backend ended the connection"
			if again && silent {
				// Other idle connections are probably closed as well, so open a new one.
				if fresh = true; !reused {
					c.tried = append(c.tried, ep)
				}
				continue
			}
		}
		break
	}
	if left.hasData() {
		c.ended = true
	}
	c.reject(status, reason)
	return nil, left
}

var errClientGone = errors.New("the client closed the connection")

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isRepeatable reports whether a request with a method may be sent again if its outcome is unknown.
func isRepeatable(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	return false
}

// appendBody appends the available part of the body to the head.
func (c *conn) appendBody(rule *route.Rule) (unsentBody, *statusError) {
	q := &c.req
	switch b := c.buf.bytes(); {
	case q.chunked:
		n, err := c.body.consume(b)
		if err == nil && rule.Policy.MaxBody > 0 && c.body.total > rule.Policy.MaxBody {
			err = &statusError{413, "the body is too large"}
		}
		if err != nil {
			return unsentBody{}, err
		}
		c.out = append(c.out, b[:n]...)
		c.buf.r += n
		return unsentBody{chunked: !c.body.isDone()}, nil
	case q.length > 0:
		n := min(int64(len(b)), q.length)
		c.out = append(c.out, b[:n]...)
		c.buf.r += int(n)
		return unsentBody{length: q.length - n}, nil
	}
	return unsentBody{}, nil
}

// roundTrip sends the request and reads the head of the response. It forwards interim responses to the client.
func (c *conn) roundTrip(rule *route.Rule, up *upstream, left unsentBody) error {
	if up.writeDeadline.extend(c.e.clock(), rule.Policy.Send) {
		_ = up.nc.SetWriteDeadline(c.e.timeAt(up.writeDeadline.at))
	}
	if _, err := up.nc.Write(c.out); err != nil {
		return err
	}
	if left.hasData() {
		// The response may arrive before the body is sent completely, so send the rest concurrently.
		c.pump = c.startPump(rule, up, left)
	}
	for {
		if err := up.readHead(c.e, &c.res, c.limitDeadline(c.e.clock()+int64(rule.Policy.Read)), c); err != nil {
			if bad := c.stopPump(up); bad != nil {
				return bad
			}
			return err
		}
		if c.res.status == 101 && !c.res.isValidSwitch(&c.req) {
			c.stopPump(up)
			return &statusError{502, "the backend switches protocols unasked"}
		}
		if c.res.status >= 200 || c.res.status == 101 {
			return nil
		}
		if c.req.minor == 0 {
			continue
		}
		interim := appendAnswer(nil, &c.res, nil)
		if err := c.write(append(interim, '\r', '\n'), writeTimeout); err != nil {
			c.stopPump(up)
			return errClientGone
		}
	}
}

// readHead reads the head of a response until a time of the clock. c is the client that waits for it and may
// disconnect, or nil.
func (u *upstream) readHead(e *Engine, a *response, until int64, c *conn) error {
	parsed := 0
	for {
		if b := u.buf.bytes(); len(b) > parsed && bytes.IndexByte(b[parsed:], '\n') >= 0 {
			size, err := a.parse(b)
			if err == nil {
				u.buf.r += size
				return nil
			}
			if err != errIncomplete {
				return &statusError{502, "the backend's answer is malformed"}
			}
			parsed = len(b)
		}
		if !u.buf.makeRoom(max(e.cfg.MaxHead, upstreamBuffer)) {
			return &statusError{502, "the head of the backend's answer is too large"}
		}
		now := e.clock()
		if left := until - now; left <= int64(2*clientCheckInterval) || c == nil {
			if u.readDeadline.set(until) {
				_ = u.nc.SetReadDeadline(e.timeAt(until))
			}
		} else if u.readDeadline.extend(now, clientCheckInterval) {
			_ = u.nc.SetReadDeadline(e.timeAt(u.readDeadline.at))
		}
		n, err := u.nc.Read(u.buf.b[u.buf.w:])
		u.buf.w += n
		if n > 0 || err == nil {
			continue
		}
		if c != nil && isTimeout(err) && e.clock() < until {
			if c.pump == nil && c.raw != nil && peek(c.raw) == peekClosed {
				return errClientGone
			}
			continue
		}
		return err
	}
}

// fill reads more of a response. wait limits the time between two reads. until is a time of the clock, or 0 for no
// limit.
func (u *upstream) fill(e *Engine, wait time.Duration, until int64) error {
	u.buf.makeRoom(len(u.buf.b))
	u.setReadDeadline(e, wait, until)
	n, err := u.nc.Read(u.buf.b[u.buf.w:])
	if u.buf.w += n; n > 0 {
		return nil
	}
	return err
}
