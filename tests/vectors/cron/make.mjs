// Writes cron-parser.json: what the npm package cron-parser 5 makes of these expressions. See ORIGIN.md.
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(process.cwd() + '/')
const { CronExpressionParser } = require('cron-parser')
const version = JSON.parse(readFileSync('node_modules/cron-parser/package.json')).version

const RUNS = 5
const starts = [
  '2026-11-20T19:48:00.123Z', '2024-02-28T23:59:00.000Z', '2027-12-31T23:59:59.999Z',
  '2026-03-01T00:00:00.000Z', '2096-02-29T00:00:00.000Z',
]
const expressions = [
  // every day and ordinary
  '* * * * *', '0 * * * *', '0 0 * * *', '5 4 * * *', '30 12 * * *', '59 23 * * *', '05 04 * * *',
  '0 0 1 * *', '0 0 15 * *', '0 0 31 * *', '0 0 30 * *', '0 0 1 1 *', '59 23 31 12 *',
  // steps
  '*/5 * * * *', '*/7 * * * *', '*/59 * * * *', '*/60 * * * *', '*/1000 * * * *', '0 */2 * * *', '0 */5 * * *',
  '5/15 * * * *', '3/20 * * * *', '0 22/1 * * *', '10-40/5 * * * *', '3-3/2 * * * *', '5-5 * * * *', '0 0 */2 * *',
  '0 0 */10 * *', '0 0 5/7 * *', '0 0 1 */3 *', '0 0 1 2/3 *', '0 0 * * */2', '0 0 * * */7', '0 0 * * 5/1', '0 0 * * 1-5/2',
  // lists and ranges
  '0,30 * * * *', '0,15,30,45 * * * *', '1-3,10-12 * * * *', '*/30,7 * * * *', '0 9-17 * * *', '0 9-17 * * 1-5',
  '0 0 1,15 * *', '0 0 28-31 * *', '0 0 1 1,4,7,10 *', '0 0 * * 1,3,5', '30,0 12,6 * * *', '0 0 31 4,5 *',
  // names
  '0 0 * * MON', '0 0 * * mon', '0 0 * * Mon-Fri', '0 0 * * SUN', '0 0 * * SUN-SAT', '0 0 * * SAT,SUN', '0 0 1 JAN *',
  '0 0 1 jan-mar *', '0 0 1 JAN,jul *', '0 0 1 JAN-3 *', '0 0 * FEB FRI', '0 0 1 JAN-DEC/2 *', '0 0 * * MON-FRI/2',
  // Sunday is 0 and 7
  '0 0 * * 0', '0 0 * * 7', '0 0 * * 6-7', '0 0 * * 5-7', '0 0 * * 0-7', '0 0 * * 7-7', '0 0 * * 1-7/3',
  // both day fields: either
  '0 0 13 * 5', '0 0 1 * 1', '0 0 */2 * 1', '0 0 */1 * 1', '0 0 1 * */2', '0 0 1-31 * 1', '0 0 1 * 0-7', '0 0 1 * 0-6',
  '0 0 */15 * */3', '0 0 L * 1', '0 0 31 2,4 1', '0 0 30 2 1', '0 0 29,30 2 1', '0 0 31 4 MON', '0 0 31 2 *,5L', '0 0 31 4,6 5L',
  // question marks
  '0 0 ? * *', '0 0 * * ?', '0 0 ? * 1', '0 0 1 * ?', '? * * * *', '? ? ? ? ?', '?/5 * * * *', '0 0 ?/2 * 1',
  // last days
  '0 0 L * *', '0 0 L 2 *', '0 0 L,15 * *', '0 0 15,L * *', '0 0 30,L 2 *', '0 0 * * 5L', '0 0 * * FRIL', '0 0 * * 1L,3L', '0 0 * * 1,5L',
  '0 0 * * 7L', '0 0 * * 0L', '0 0 * * 1,1L', '0 0 15 * 5L', '0 0 L * 5L', '0 0 *,L * *', '0 0 * 2 5L',
  // leap days and days that no month has
  '0 0 29 2 *', '0 0 29 2 ?', '0 12 29 FEB *', '0 0 30 2 *', '0 0 31 2 *', '0 0 31 4,6,9,11 *', '0 0 30-31 2 *', '0 0 29-31 2 *',
  // spaces
  ' 0 0 * * * ', '0  0\t* * *', '0 0 * * *\n', '0\n0 * * *', '0\u00a00 * * *',
  // looser than five fields
  '', '*', '* *', '* * * *', '* * * * * *', '0 0 0 * * *', '*/10 * * * * *', '* * * * * * *',
  '@daily', '@hourly', '@weekly', '@yearly', '@reboot', '0 0 * * 5#3', '0 0 * * MON#1', '0 0 * * 1#6',
  'H * * * *', 'H/5 * * * *', 'H(0-10) * * * *', '0 0 R * *', '0 0 15W * *', '0 0 LW * *', '0 0 1 JAN1 *',
  // not schedules
  '60 * * * *', '61 * * * *', '-1 * * * *', '0 24 * * *', '0 0 0 * *', '0 0 32 * *', '0 0 * 0 *', '0 0 * 13 *', '0 0 * * 8',
  '*/0 * * * *', '0/0 * * * *', '*/ * * * *', '/5 * * * *', '1/2/3 * * * *', '*/1.5 * * * *', '*/1e1 * * * *', '*/-1 * * * *', '0x5 * * * *', '+5 * * * *', '1.5 * * * *',
  '5-1 * * * *', '22-2 * * * *', '0 0 * * FRI-MON', '0 0 * * 5-0', '1-2-3 * * * *', '1- * * * *', '-5 * * * *', '1,,2 * * * *', ',1 * * * *', '1, * * * *',
  '1,1 * * * *', '1-5,3 * * * *', '*,1 * * * *', '0 0 * * 0,7', '0 0 * * 5-7,0', '0 0 * * 6-7,7', '0 0 * * SUN,0', '0 0 L,L * *', '0 0 * * 1L,1L', '0 0 * * 0L,7L', '0 0 * * 5L,FRIL',
  '*5 * * * *', '5* * * * *', '** * * * *', '*-5 * * * *', '1-* * * * *', '0 0 ?? * *',
  'L * * * *', '0 L * * *', '0 0 * L *', '0 0 * * L', '0 0 l * *', '0 0 * * 5l', '0 0 15L * *', '0 0 L-3 * *', '0 0 L/2 * *', '0 0 * * 8L', '0 0 * * 1-5L', '0 0 * * 5L/2',
  '0 0 * * MONDAY', '0 0 * * XYZ', '0 0 1 XYZ *', '0 0 MON * *', 'JAN * * * *', '0 0 * MON *', '0 0 * * JAN', '0 0 * * MON5', '0 0 * * 1MON',
  '\u0661 * * * *', '\uff15 * * * *', '0 0 * * M\u00d6N', 'a b c d e', '000000005 * * * *', '0 0 * * 07', '0 0 * * 00',
]

function runs(expression, start) {
  const parsed = CronExpressionParser.parse(expression, { currentDate: new Date(start), tz: 'UTC' })
  return Array.from({ length: RUNS }, () => parsed.next().getTime())
}

const cases = [...new Set(expressions)].map((expression) => {
  try {
    return { expression, runs: starts.map((start) => runs(expression, start)) }
  } catch (error) {
    return { expression, refused: error.message }
  }
})

const lines = cases.map((value) => '    ' + JSON.stringify(value)).join(',\n')
const head = `{\n  "parser": "cron-parser ${version}",\n  "starts": ${JSON.stringify(starts.map((s) => Date.parse(s)))},\n  "cases": [\n`
writeFileSync(new URL('cron-parser.json', import.meta.url), head + lines + '\n  ]\n}\n')
