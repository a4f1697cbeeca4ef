package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"sigs.k8s.io/yaml"
)

// fields are the header of the request as HTTP/2 has it, also what HTTP/2 forbids.
func (r hostileRow) fields(host string) (fields []hpack.HeaderField, body string) {
	expand := func(text string) string {
		return strings.NewReplacer("@ns", "/api/v1/namespaces/"+hostileNamespace, "@host", host).Replace(text)
	}
	add := func(name, value string) { fields = append(fields, hpack.HeaderField{Name: name, Value: value}) }
	add(":method", r.method)
	add(":scheme", "https")
	add(":authority", host)
	add(":path", expand(r.target))
	add("user-agent", "hostile")
	for _, line := range r.headers {
		name, value, _ := strings.Cut(expand(line), ":")
		add(strings.ToLower(name), strings.TrimPrefix(value, " "))
	}
	return fields, expand(r.body)
}

// sendHostileHTTP2 sends the frames of a row as a user, on a connection of its own. A stream or connection that is ended is no response.
func sendHostileHTTP2(ctx context.Context, at Endpoint, config *tls.Config, row hostileRow, patience time.Duration) (answer hostileAnswer, err error) {
	stream, host, err := dialHostile(ctx, at, config, "h2", patience)
	if err != nil {
		return answer, err
	}
	defer stream.Close()
	fields, body := row.fields(host)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range fields {
		if err := encoder.WriteField(field); err != nil {
			return answer, err
		}
	}
	framer := http2.NewFramer(stream, stream)
	framer.AllowIllegalWrites = true
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	// Whoever refuses a request may end the connection before all is written.
	_, _ = stream.Write([]byte(http2.ClientPreface))
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: body == "", EndHeaders: true})
	if body != "" {
		_ = framer.WriteData(1, true, []byte(body))
	}
	var data []byte
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return hostileAnswer{}, nil //nolint:nilerr // an ended connection is an answer
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			answer.code = 0
			for _, digit := range frame.PseudoValue("status") {
				answer.code = answer.code*10 + int(digit-'0')
			}
			for _, field := range frame.RegularFields() {
				if field.Name == "x-fairgate-reason" {
					answer.reason = field.Value
				}
			}
			if !frame.StreamEnded() {
				continue
			}
		case *http2.DataFrame:
			if data = append(data, frame.Data()...); !frame.StreamEnded() {
				continue
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return hostileAnswer{}, nil
		default:
			continue
		}
		var status struct{ Message string }
		if yaml.Unmarshal(data, &status) != nil || status.Message == "" {
			status.Message = string(data[:min(len(data), 300)])
		}
		answer.message = hostileVarying.ReplaceAllString(status.Message, "@")
		return answer, nil
	}
}
