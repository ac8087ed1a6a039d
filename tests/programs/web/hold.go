package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"sync/atomic"
	"time"
)

// serveEcho answers every line on a connection with the same line, and every datagram with the same datagram.
func serveEcho(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				log.Fatal(err)
			}
			_, _ = p.WriteTo(b[:n], from)
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return nil
}

// answerTimeout is how long an answer on an open connection may take. It is longer than TCP needs to retransmit what
// was lost while rules were missing.
const answerTimeout = 20 * time.Second

// holdConnection keeps one connection open, and sends lines that the server must answer, until the process ends. If the
// connection ends, it reports this and opens another.
func holdConnection(address string, every time.Duration, to io.Writer) {
	out := json.NewEncoder(to)
	var made atomic.Int64
	for {
		start := time.Now()
		err := exchangeLines(address, every, func() {
			if n := made.Add(1); n%10 == 0 {
				_ = out.Encode(report{At: time.Now(), Made: n})
			}
		})
		_ = out.Encode(
			report{
				At: time.Now(),
				Error: fmt.Sprintf("a connection that began %s ago ended: %v",
					time.Since(start).Round(time.Millisecond), err),
			},
		)
		time.Sleep(every)
	}
}

func exchangeLines(address string, every time.Duration, answered func()) error {
	c, err := net.DialTimeout("tcp", address, answerTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		line := fmt.Sprintf("%d\n", n)
		if _, err := io.WriteString(c, line); err != nil {
			return err
		}
		got, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if got != line {
			return fmt.Errorf("%q came where %q was due", got, line)
		}
		answered()
		<-tick.C
	}
}
