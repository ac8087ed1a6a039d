package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"clusterctl/daemons/ingress/route"
)

// attempts is how many endpoints are tried for one request.
const attempts = 3

// answer finds the rule of the request that was read and has its backend answer.
func (c *conn) answer() {
	q := &c.req
	c.body.reset()
	path, scratch, ok := route.PlainPath(q.path, c.scratch)
	c.scratch = scratch
	if !ok {
		c.reject(errPath.status, errPath.why)
		return
	}
	rule := c.entry.table.Load().Find(hostname(q.host), path, c)
	c.rule = rule
	switch {
	case rule == nil:
		c.reject(404, "no route")
		return
	case c.redirects(rule):
		return
	case rule.Policy.MaxBody > 0 && q.length > rule.Policy.MaxBody:
		c.reject(413, "the body is too large")
		return
	}
	if rule.Policy.Total > 0 {
		c.until = c.began + int64(rule.Policy.Total)
	}
	chosen := choose(rule.Backends)
	p := chosen.pool()
	if p == nil {
		c.reject(missing(rule), "no backend")
		return
	}
	if bad := c.e.startCall(c); bad != nil {
		c.reject(bad.status, bad.why)
		return
	}
	defer c.e.endCall(c)
	c.headers, c.answers = chosen.changes(rule)
	if p.h2 != nil {
		c.overHTTP2(rule, p)
		return
	}
	up, rest := c.send(rule, p)
	if up == nil {
		return
	}
	up.of.active.Add(1)
	defer up.of.active.Add(-1)
	c.backend = up.of
	c.pass(rule, up, rest)
}

// Method, Header and Query are what rules match beyond host and path.
func (c *conn) Method() string { return string(c.req.method) }

// Header returns a field's value. Lines of one name are one list.
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

// Query returns a parameter's value.
func (c *conn) Query(name string) (string, bool) { return queryValue(string(c.req.query), name) }

// chosen is the backend of one request; the zero value is none.
type chosen struct{ *route.Weighted }

// choose picks one of a rule's backends by their weights.
func choose(all []route.Weighted) chosen {
	if len(all) == 1 && all[0].Weight > 0 {
		return chosen{&all[0]}
	}
	sum := 0
	for i := range all {
		sum += all[i].Weight
	}
	if sum == 0 {
		return chosen{}
	}
	at := rand.IntN(sum)
	for i := range all {
		if at -= all[i].Weight; at < 0 {
			return chosen{&all[i]}
		}
	}
	return chosen{}
}

func (c chosen) pool() *pool {
	if c.Weighted == nil || c.Backend == nil {
		return nil
	}
	p, _ := c.Backend.Targets.(*pool)
	return p
}

// changes are those of the heads on their way to the backend and back.
func (c chosen) changes(rule *route.Rule) (request, response *route.Headers) {
	return cmp.Or(c.Request, rule.Filters.Request), cmp.Or(c.Response, rule.Filters.Response)
}

// missing is the status where a rule has no backend.
func missing(rule *route.Rule) int { return cmp.Or(rule.Missing, 503) }

// reject answers in place of a backend. A body that the client would still send is not waited for.
func (c *conn) reject(status int, why string) {
	if c.req.chunked || c.req.length > 0 {
		c.ended = true
	}
	c.fail(status, why)
}

// redirects answers what is to be asked for elsewhere.
func (c *conn) redirects(rule *route.Rule) bool {
	if rule.ToHTTPS && !c.isSecure() {
		c.redirect(&route.Redirect{Scheme: "https", Port: c.e.cfg.HTTPSPort, Code: 308})
		return true
	}
	if r := rule.Filters.Redirect; r != nil {
		c.redirect(r)
		return true
	}
	return false
}

// isSecure reports whether the client asks over TLS, here or at somebody who is trusted to say so.
func (c *conn) isSecure() bool {
	if c.trusted {
		if list, ok := c.req.value("x-forwarded-proto"); ok {
			for v := range elements(list) {
				return equalFold(v, "https") // the first is what the client of all proxies spoke
			}
		}
	}
	return c.secure
}

func (c *conn) redirect(r *route.Redirect) {
	if c.req.chunked || c.req.length > 0 {
		c.ended = true
	}
	c.status = r.Code
	c.out = appendRedirect(
		c.out[:0],
		r,
		c.isSecure(),
		string(c.req.host),
		c.port,
		c.req.target,
		c.ended || c.req.minor == 0,
	)
	if c.write(c.out, writeTime) != nil {
		c.ended = true
	}
	if c.ended {
		c.linger()
	}
}

// rest is what of a request's body has not been sent with its head.
type rest struct {
	length  int64
	chunked bool
}

func (r rest) any() bool { return r.chunked || r.length > 0 }

// send sends the request's head, with what of the body has come, to an endpoint, and reads the head of the answer. It
// returns nil when no endpoint answered; then the client has been told.
//
// A request goes to another endpoint when a connection could not be made, and when it may be sent twice and nothing was
// answered.
func (c *conn) send(rule *route.Rule, p *pool) (*upstream, rest) {
	c.tried = c.tried[:0]
	c.out = c.appendRequest(c.out[:0], rule)
	left, bad := c.appendBody(rule)
	if bad != nil {
		c.ended = true
		c.fail(bad.status, bad.why)
		return nil, left
	}
	again := repeatable(c.req.method) && !c.req.chunked && c.req.length <= 0
	status, why := 503, "no endpoint"
	fresh := false
	for range attempts {
		ep := p.pick(c.tried, c.e.clock())
		if ep == nil && len(c.tried) > 0 && fresh {
			ep = p.pick(nil, c.e.clock())
		}
		if ep == nil {
			break
		}
		var up *upstream
		if !fresh {
			up = ep.take(!again)
		}
		if up == nil {
			var err error
			if up, err = ep.dial(rule.Policy.Connect); err != nil {
				c.tried = append(c.tried, ep)
				status, why = 502, "no connection to the backend"
				if isTimeout(err) {
					status, why = 504, "no connection to the backend in time"
				}
				continue
			}
		}
		err := c.converse(rule, up, left)
		if err == nil {
			return up, left
		}
		silent := up.buf.w == 0 // not a byte of an answer
		reused := up.reused
		up.close()
		var refused *malformed
		switch {
		case errors.Is(err, errClientGone):
			c.ended, c.status = true, 499
			return nil, left
		case errors.As(err, &refused):
			status, why = refused.status, refused.why
			if status == 502 || status == 504 {
				break
			}
			c.ended = true
			c.fail(status, why)
			return nil, left
		case isTimeout(err):
			status, why = 504, "the backend did not answer in time"
		default:
			status, why = 502, "the backend ended the connection"
			if again && silent {
				// The others that were put aside are likely to be closed as well.
				if fresh = true; !reused {
					c.tried = append(c.tried, ep)
				}
				continue
			}
		}
		break
	}
	if left.any() {
		c.ended = true
	}
	c.reject(status, why)
	return nil, left
}

var errClientGone = errors.New("the client closed the connection")

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// repeatable reports whether a request of a method may be sent again when it is not known what became of it.
func repeatable(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE":
		return true
	}
	return false
}

// appendBody adds what has come of the body to what is sent with the head.
func (c *conn) appendBody(rule *route.Rule) (rest, *malformed) {
	q := &c.req
	switch b := c.buf.bytes(); {
	case q.chunked:
		n, err := c.body.through(b)
		if err == nil && rule.Policy.MaxBody > 0 && c.body.total > rule.Policy.MaxBody {
			err = &malformed{413, "the body is too large"}
		}
		if err != nil {
			return rest{}, err
		}
		c.out = append(c.out, b[:n]...)
		c.buf.r += n
		return rest{chunked: !c.body.done()}, nil
	case q.length > 0:
		n := min(int64(len(b)), q.length)
		c.out = append(c.out, b[:n]...)
		c.buf.r += int(n)
		return rest{length: q.length - n}, nil
	}
	return rest{}, nil
}

// converse writes what is to be sent and reads the answer's head. Interim answers go to the client.
func (c *conn) converse(rule *route.Rule, up *upstream, left rest) error {
	if up.writing.extend(c.e.clock(), rule.Policy.Send) {
		_ = up.nc.SetWriteDeadline(c.e.at(up.writing.at))
	}
	if _, err := up.nc.Write(c.out); err != nil {
		return err
	}
	if left.any() {
		// An answer may come before all of the body has been sent, so that both go on at once.
		c.pump = c.startPump(rule, up, left)
	}
	for {
		if err := up.readHead(c.e, &c.ans, c.atMost(c.e.clock()+int64(rule.Policy.Read)), c); err != nil {
			if bad := c.stopPump(up); bad != nil {
				return bad
			}
			return err
		}
		if c.ans.status == 101 && !c.ans.switches(&c.req) {
			c.stopPump(up)
			return &malformed{502, "the backend switches protocols unasked"}
		}
		if c.ans.status >= 200 || c.ans.status == 101 {
			return nil
		}
		if c.req.minor == 0 {
			continue
		}
		interim := appendAnswer(nil, &c.ans, nil)
		if err := c.write(append(interim, '\r', '\n'), writeTime); err != nil {
			c.stopPump(up)
			return errClientGone
		}
	}
}

// readHead reads the head of an answer until a time of the clock. c is the client who waits for it and may give up, or
// nil.
func (u *upstream) readHead(e *Engine, a *answer, until int64, c *conn) error {
	parsed := 0
	for {
		if b := u.buf.bytes(); len(b) > parsed && bytes.IndexByte(b[parsed:], '\n') >= 0 {
			size, err := a.parse(b)
			if err == nil {
				u.buf.r += size
				return nil
			}
			if err != errIncomplete {
				return &malformed{502, "the backend's answer is malformed"}
			}
			parsed = len(b)
		}
		if !u.buf.room(max(e.cfg.MaxHead, upstreamBuffer)) {
			return &malformed{502, "the head of the backend's answer is too large"}
		}
		now := e.clock()
		if left := until - now; left <= int64(2*lookEvery) || c == nil {
			if u.reading.exact(until) {
				_ = u.nc.SetReadDeadline(e.at(until))
			}
		} else if u.reading.extend(now, lookEvery) {
			_ = u.nc.SetReadDeadline(e.at(u.reading.at))
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

// lookEvery is how often it is looked, while a backend takes its time, whether the client is still there.
const lookEvery = 2 * time.Second

// pass sends the answer to the client.
func (c *conn) pass(rule *route.Rule, up *upstream, left rest) {
	a := &c.ans
	c.status = a.status
	if a.status == 101 {
		c.tunnel(rule, up)
		return
	}
	out := appendAnswer(c.out[:0], a, c.answers)
	framing := c.framing()
	switch framing {
	case asChunks, toChunks:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	case untilClose, fromChunks:
		c.ended = true
	}
	if c.ended || c.draining() {
		c.ended = true
		out = append(out, "Connection: close\r\n"...)
	} else if c.req.minor == 0 {
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	c.out = append(out, '\r', '\n')
	whole, err := c.passBody(rule, up, framing)
	clean := err == nil && whole
	if c.pump != nil {
		bad := c.stopPump(up)
		if bad != nil || !c.sentAll {
			clean, c.ended = false, true
		}
	}
	if !clean {
		c.ended = true
	}
	if clean && a.persists() && framing != untilClose && up.buf.r == up.buf.w {
		up.of.put(up)
	} else {
		up.close()
	}
	if c.ended && err == nil && (left.any() || c.buf.r < c.buf.w) {
		c.linger()
	}
}

// framing says how an answer's body ends, as it is read and as it is written.
type framing uint8

const (
	noBody     framing = iota
	asLength           // Content-Length on both sides
	asChunks           // chunks on both sides
	fromChunks         // read in chunks, written until the end
	toChunks           // read until the end, written in chunks
	untilClose         // to the end on both sides
)

func (c *conn) framing() framing {
	a := &c.ans
	switch {
	case !a.hasBody(string(c.req.method) == "HEAD"):
		return noBody
	case a.chunked && c.req.minor > 0:
		return asChunks
	case a.chunked:
		return fromChunks
	case a.length >= 0:
		return asLength
	case c.req.minor > 0:
		return toChunks
	}
	return untilClose
}

// passBody writes the head, which is in c.out, with the body after it. whole says that the body came to its end.
func (c *conn) passBody(rule *route.Rule, up *upstream, f framing) (whole bool, err error) {
	a := &c.ans
	switch f {
	case noBody:
		return true, c.write(c.out, writeTime)
	case asLength:
		b := up.buf.bytes()
		n := int(min(int64(len(b)), a.length))
		c.out = append(c.out, b[:n]...)
		up.buf.r += n
		c.sent = int64(n)
		if err := c.write(c.out, writeTime); err != nil {
			return false, err
		}
		return c.passLength(rule, up, a.length-int64(n))
	}
	var body chunks
	for {
		if b := up.buf.bytes(); len(b) > 0 {
			used, done, bad := c.appendPiece(b, f, &body)
			if bad != nil {
				return false, bad
			}
			if up.buf.r += used; done {
				return true, c.write(c.out, writeTime)
			}
		}
		if len(c.out) > 0 {
			if err := c.write(c.out, writeTime); err != nil {
				return false, err
			}
			c.out = c.out[:0]
		}
		switch err := up.fill(c.e, rule.Policy.Read, c.until); {
		case err == nil:
		case errors.Is(err, io.EOF) && (f == toChunks || f == untilClose):
			if f == toChunks {
				err = c.write([]byte("0\r\n\r\n"), writeTime)
				return err == nil, err
			}
			return true, nil
		default:
			return false, err
		}
	}
}

// appendPiece adds a piece of a body to what is written next, in the framing of the client. It returns how much of it
// was used, and whether the body is at its end.
func (c *conn) appendPiece(b []byte, f framing, body *chunks) (used int, done bool, err *malformed) {
	switch f {
	case asChunks:
		before := body.total
		n, err := body.through(b)
		c.out = append(c.out, b[:n]...)
		c.sent += body.total - before
		return n, body.done(), err
	case fromChunks:
		for used < len(b) && !body.done() {
			n, data, err := body.next(b[used:])
			if err != nil {
				return used, false, err
			}
			c.out = append(c.out, data...)
			c.sent += int64(len(data))
			used += n
		}
		return used, body.done(), nil
	case toChunks:
		c.out = strconv.AppendInt(c.out, int64(len(b)), 16)
		c.out = append(c.out, '\r', '\n')
		c.out = append(c.out, b...)
		c.out = append(c.out, '\r', '\n')
	default:
		c.out = append(c.out, b...)
	}
	c.sent += int64(len(b))
	return len(b), false, nil
}

// fill reads more of an answer, within the time between two reads, and until a time of the clock unless that is 0.
func (u *upstream) fill(e *Engine, wait time.Duration, until int64) error {
	u.buf.room(len(u.buf.b))
	u.wait(e, wait, until)
	n, err := u.nc.Read(u.buf.b[u.buf.w:])
	if u.buf.w += n; n > 0 {
		return nil
	}
	return err
}
