import com.paypal.dione.spark.index.{IndexManager, IndexSpec}
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.apache.spark.sql.functions.{col, xxhash64}

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.collection.JavaConverters._
import scala.util.control.NonFatal

/** Tables that Dione's own job indexes, and a proof of index tables by Dione's own readers.
  *
  *   write FOLDER           Makes the tables and their indexes, and FOLDER/NAME.json with the rows of each.
  *   prove FOLDER [FILE]    Asks Dione's readers for every key of its own indexes, or of the tables that FILE declares:
  *                          a line is the table, a tab, its statement.
  *   types FOLDER           Prints, for each format and type of a key, what Dione's job and readers do with it, and writes
  *                          FOLDER/types.json for `python -m tests.golden.dione_tables.types FOLDER`.
  *   speed FOLDER           Measures Dione's job and readers, and writes FOLDER/speed.json for `python -m bench.dione FOLDER`.
  */
object DioneTables {
  val Types = Map("ks" -> "string", "ki" -> "int", "kl" -> "bigint", "kd" -> "string", "n" -> "int", "v" -> "string")
  val Keys = Seq(Seq("ks"), Seq("ki"), Seq("kl"), Seq("ki", "ks"), Seq("kd"))

  /** `columns` is their order. */
  case class Source(name: String, storage: String, columns: Seq[String], keys: Seq[Seq[String]], moreFields: Seq[String])

  /** Dione's reader of ORC takes the type of the first field that it reads from the first column of the file, and so
    * on. So each key has a table of its own, in which the key columns and `v` are first. */
  val Sources: Seq[Source] = {
    val all = Seq("ks", "ki", "kl", "kd", "n", "v")
    val delimited = "ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' STORED AS INPUTFORMAT " +
      "'org.apache.hadoop.mapred.SequenceFileInputFormat' OUTPUTFORMAT " +
      "'org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat'"
    val orc = for (keys <- Keys) yield {
      val first = keys :+ "v"
      Source(s"orc_${keys.mkString("_")}", "STORED AS ORC", first ++ all.filterNot(first.contains), Seq(keys), Nil)
    }
    Seq(
      Source("parquet", "STORED AS PARQUET", all, Keys, Seq("n")),
      Source("avro", "STORED AS AVRO", all, Keys, Seq("n")),
      Source("sequence", delimited, all, Keys, Seq("n")),
      Source("sequence_blocks", delimited, all, Keys, Seq("n"))) ++ orc
  }
  val Days = Seq("2026-01-01", "2026-01-02")
  val RowsOfDay = 300
  val Settings = Seq("num.parts" -> "3", "height" -> "3", "interval" -> "20")
  /** Keys with characters of one to four bytes, whose orders in UTF-8 and in Java differ; numbers of both signs; keys
    * that occur several times. */
  val Rows = Seq(
    "concat(element_at(array('k', 'é', '日本', '\uffee', '😀'), cast(id % 5 + 1 as int)), id) ks",
    "cast(id * 7919 % 100003 - 50000 as int) ki",
    "id * 1000000007L - 300000000000L kl",
    "concat(element_at(array('d', 'ß', '😀'), cast(id % 3 + 1 as int)), id % 41) kd",
    "cast(id as int) n",
    "repeat(md5(cast(id as string)), 10) v")

  def session(folder: String): SparkSession = {
    val spark = SparkSession.builder().master("local[2]").appName("dione").enableHiveSupport()
      .config("spark.sql.warehouse.dir", s"$folder/warehouse")
      .config("spark.hadoop.javax.jdo.option.ConnectionURL", s"jdbc:derby:;databaseName=$folder/metastore;create=true")
      .config("spark.sql.shuffle.partitions", "2")
      .config("spark.ui.enabled", "false")
      .config("spark.hadoop.parquet.block.size", "4096")
      .config("spark.hadoop.parquet.block.size.row.check.min", "10")
      .config("spark.hadoop.io.seqfile.compress.blocksize", "8000")
      .config("spark.hadoop.io.compression.codecs", "")
      .config("indexer.files.chunk.split", "false")
      .config("spark.sql.redaction.options.regex", "(?i)password") // SHOW CREATE TABLE shows avro.schema.url
      .getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for ((name, value) <- Settings) spark.conf.set(s"index.manager.btree.$name", value)
    spark
  }

  def main(words: Array[String]): Unit = {
    implicit val spark: SparkSession = session(words(1))
    words(0) match {
      case "write" => write(words(1))
      case "types" => types(words(1))
      case "speed" => speed(words(1))
      case "prove" =>
        val tables = if (words.length < 3) ownIndexes else declared(words(2))
        tables.foreach(prove)
    }
    spark.stop()
  }

  // -- the tables -----------------------------------------------------------------------------------------------------

  def write(folder: String)(implicit spark: SparkSession): Unit = {
    spark.sql("CREATE DATABASE IF NOT EXISTS dione")
    for (source <- Sources; file = Paths.get(s"$folder/${source.name}.json"); if !Files.exists(file)) {
      val table = s"dione.${source.name}"
      val columns = source.columns.map(name => s"$name ${Types(name)}").mkString(", ")
      spark.sql(s"DROP TABLE IF EXISTS $table")
      spark.sql(s"CREATE TABLE $table ($columns) PARTITIONED BY (dt string) ${source.storage}")
      spark.sql(s"SET hive.exec.compress.output=${source.name.endsWith("blocks")}")
      spark.sql("SET mapreduce.output.fileoutputformat.compress.type=BLOCK")
      for ((day, number) <- Days.zipWithIndex) {
        spark.range(number * RowsOfDay, (number + 1) * RowsOfDay).selectExpr(Rows: _*).repartition(2)
          .select(source.columns.map(col): _*).createOrReplaceTempView("rows")
        spark.sql(s"INSERT INTO $table PARTITION (dt = '$day') SELECT * FROM rows")
      }
      val failed = source.keys.map(keys => keys -> index(source, keys)).filter(_._2.nonEmpty)
      for ((keys, why) <- failed) println(s"$table by ${keys.mkString(", ")}: $why")
      val made = source.keys.diff(failed.map(_._1))
      val rows = spark.table(table).orderBy("n").toJSON.collect().mkString("[\n", ",\n", "]")
      val json =
        s"""{"root": ${text(s"file:$folder/warehouse")}, "indexes": ${made.map(texts).mkString("[", ", ", "]")},
           | "include": ${texts(source.moreFields)}, "columns": ${text(columns)},
           | "statements": ${(table +: made.map(indexOf(source, _))).map(declaration).mkString("[", ", ", "]")},
           | "rows": $rows}
           |""".stripMargin
      Files.write(file, json.getBytes(UTF_8))
    }
  }

  /** The statement that declares a table, as JSON. */
  def declaration(table: String)(implicit spark: SparkSession): String =
    text(spark.sql(s"SHOW CREATE TABLE $table AS SERDE").head().getString(0))

  def text(value: String): String = "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\""
  def texts(values: Seq[String]): String = values.map(text).mkString("[", ", ", "]")

  /** Dione's own job. Returns why it failed. */
  def index(source: Source, keys: Seq[String])(implicit spark: SparkSession): String = {
    val table = indexOf(source, keys)
    tried {
      spark.sql(s"DROP TABLE IF EXISTS $table")
      val spec = IndexSpec(s"dione.${source.name}", table, keys, source.moreFields)
      IndexManager.createNew(spec).appendMissingPartitions()
      val found = spark.table(table).count()
      if (found == Days.length * RowsOfDay) "" else s"$found entries"
    }
  }

  def tried(work: => String): String = try work catch {
    case NonFatal(error) =>
      val cause = Iterator.iterate[Throwable](error)(_.getCause).takeWhile(_ != null).toSeq.last
      s"${cause.getClass.getSimpleName}: ${String.valueOf(cause.getMessage).linesIterator.toSeq.headOption.getOrElse("")}"
        .take(160)
  }

  // -- the proof ------------------------------------------------------------------------------------------------------

  def ownIndexes(implicit spark: SparkSession): Seq[String] = {
    val there = spark.catalog.listTables("dione").collect().map(table => s"dione.${table.name}").toSet
    for (source <- Sources; keys <- source.keys; name = indexOf(source, keys); if there(name)) yield name
  }

  def indexOf(source: Source, keys: Seq[String]): String = s"dione.${source.name}_${keys.mkString("_")}"

  /** Declares tables. Returns those of indexes. */
  def declared(file: String)(implicit spark: SparkSession): Seq[String] = {
    spark.sql("CREATE DATABASE IF NOT EXISTS dione")
    val tables = for (line <- Files.readAllLines(Paths.get(file)).asScala) yield {
      val Array(table, statement) = line.split("\t", 2)
      spark.sql(s"DROP TABLE IF EXISTS $table")
      spark.sql(statement)
      spark.sql(s"MSCK REPAIR TABLE $table")
      table
    }
    tables.filter(table => spark.sql(s"SHOW TBLPROPERTIES $table").collect().exists(_.getString(0).startsWith("index.")))
  }

  /** Prints what each of Dione's readers found, of how many. */
  def prove(table: String)(implicit spark: SparkSession): Unit = {
    val manager = IndexManager.load(table)
    val keys = manager.keys
    val more = manager.moreFields
    val data = spark.table(manager.dataTableName)
    val rows = data.selectExpr((keys ++ Seq("n", "v", "dt")).map(name => s"`$name`"): _*).collect()
    val width = keys.length
    val groups = rows.groupBy(row => (keys.indices.map(row.get): Seq[Any], row.getString(width + 2)))
    val unique = data.select((keys :+ "dt").map(col): _*).distinct()
    val absent = rows.take(40).map(row => keys.indices.map(i => other(row.get(i))))
    def groupOf(row: Row) = groups.getOrElse((keys.map(row.getAs[Any]), row.getAs[String]("dt")), Array[Row]())
    def isRow(row: Row) = groupOf(row).exists(_.getAs[String]("v") == row.getAs[String]("v"))
    def loaded(index: DataFrame) = {
      val found = manager.loadByIndex(index, Some(Seq("v"))).select((keys ++ Seq("dt", "v")).map(col): _*).collect()
      s"${found.count(isRow)} of ${found.length}"
    }
    val proofs = Seq(
      "absent found" -> (() => absent.count(key => manager.fetch(key, Seq("dt" -> Days(0)), Some(Seq("v"))).nonEmpty)
        + s" of ${absent.length}"),
      "table rows missing" -> (() => {
        val names = (keys ++ more :+ "dt").map(col)
        val (mine, theirs) = (spark.table(table).select(names: _*), data.select(names: _*))
        s"${theirs.exceptAll(mine).count()} and ${mine.exceptAll(theirs).count()} too many of ${rows.length}"
      }),
      "join" -> (() => {
        val found = manager.joinWithIndex(unique)
        s"${found.count()} of ${groups.size}, loaded right ${loaded(found)}"
      }),
      "join with absent keys" -> (() => {
        val others = absent.toSeq.map(key => Row.fromSeq(key :+ Days(0)))
        val asked = unique.union(spark.createDataFrame(others.asJava, unique.schema))
        s"${manager.joinWithIndex(asked).count()} of ${groups.size}"
      }),
      "load all" -> (() => loaded(manager.getIndex())),
      "fetched" -> (() => groups.count { case ((key, day), some) =>
        val found = manager.fetchAll(key, Seq("dt" -> day), Some(Seq("v"))).map(_("v").toString).toSeq
        found.sorted == some.map(_.getAs[String]("v")).toSeq.sorted
      } + s" of ${groups.size} keys"))
    for ((name, proof) <- proofs) println(s"$table: $name ${tried(proof())}")
  }

  // -- types of keys, and shapes of tables ------------------------------------------------------------------------------

  val Kinds = Seq(
    "string" -> "concat('k', id)", "int" -> "cast(id * 7 as int)", "bigint" -> "id * 5000000000",
    "boolean" -> "id % 2 = 0", "double" -> "id * 1.5D - 20", "date" -> "date_add(date'2026-01-01', cast(id as int))",
    "timestamp" -> "timestamp_seconds(1767225600 + id * 61)", "decimal(10,2)" -> "cast(id * 1.25 as decimal(10,2))",
    "binary" -> "cast(concat('k', id) as binary)")
  val RowsOfType = 60
  /** Tables in Parquet: their keys, and the number of rows of a partition. */
  val Shapes = Seq(
    ("60 keys, each 30 times", "concat('k', id % 60)", 1800), ("a null among the keys", "nullif(concat('k', id), 'k3')", 60),
    ("3 rows, 3 files", "concat('k', id)", 3))

  def types(folder: String)(implicit spark: SparkSession): Unit = {
    spark.sql("CREATE DATABASE IF NOT EXISTS dione")
    val delimited = Sources.find(_.name == "sequence").get.storage
    val storages = Seq("Parquet" -> "STORED AS PARQUET", "Avro" -> "STORED AS AVRO", "ORC" -> "STORED AS ORC",
      "SequenceFile" -> delimited)
    val ofTypes = for ((format, storage) <- storages; (kind, made) <- Kinds) yield (format, kind, storage, kind, made, RowsOfType)
    val ofShapes = for ((what, made, rows) <- Shapes) yield ("Parquet", what, "STORED AS PARQUET", "string", made, rows)
    val told = for (((format, what, storage, kind, made, rows), number) <- (ofTypes ++ ofShapes).zipWithIndex) yield {
      val (data, index) = (s"dione.type_$number", s"dione.type_${number}_index")
      val made_ = tried {
        spark.sql(s"DROP TABLE IF EXISTS $data")
        spark.sql(s"CREATE TABLE $data (k $kind, v string) PARTITIONED BY (dt string) $storage")
        spark.range(rows).selectExpr(s"$made k", "md5(cast(id as string)) v").repartition(1).createOrReplaceTempView("rows")
        spark.sql(s"INSERT INTO $data PARTITION (dt = '${Days(0)}') SELECT * FROM rows")
        ""
      }
      val saw = if (made_.nonEmpty) s"no such table: $made_" else tried(asked(data, index, rows))
      println(s"$format\t$what\t$saw")
      s"""{"format": ${text(format)}, "what": ${text(what)}, "kind": ${text(kind)}, "table": "type_$number",
         | "dione": ${text(saw)}, "rows": ${if (made_.nonEmpty) "[]" else spark.table(data).selectExpr(
            "cast(k as string) k", "v").toJSON.collect().mkString("[", ",", "]")}}""".stripMargin
    }
    Files.write(Paths.get(s"$folder/types.json"), told.mkString("[", ",\n", "]").getBytes(UTF_8))
  }

  /** What Dione's job makes of a table, and its readers of the index. */
  def asked(data: String, index: String, rows: Int)(implicit spark: SparkSession): String = {
    spark.sql(s"DROP TABLE IF EXISTS $index")
    IndexManager.createNew(IndexSpec(data, index, Seq("k"), Nil)).appendMissingPartitions()
    val entries = spark.table(index).count()
    val manager = IndexManager.load(index)
    val groups = spark.table(data).select("k", "v").collect().groupBy(_.get(0)).mapValues(_.map(_.getString(1)).toSeq.sorted)
    val fetched = tried(groups.toSeq.count { case (key, values) =>
      manager.fetchAll(Seq(key), Seq("dt" -> Days(0)), Some(Seq("v"))).map(_("v").toString).toSeq.sorted == values
    }.toString)
    val joined = tried {
      val other = IndexManager.load(index) // a manager that has fetched a row of Avro cannot be sent to a task
      val found = other.loadByIndex(other.joinWithIndex(spark.table(data).select("k", "dt").distinct()), Some(Seq("v")))
      found.select("k", "v").collect().count(row => groups.get(row.get(0)).exists(_.contains(row.getString(1)))).toString
    }
    s"entries $entries of $rows; fetched $fetched of ${groups.size}; joined and loaded $joined of ${groups.size}"
  }

  // -- speed ------------------------------------------------------------------------------------------------------------

  /** The name of a table, its rows, and the text of its second column. */
  val Measured = Seq(("narrow", 500000, "md5(cast(id as string))"),
    ("wide", 100000, "array_join(transform(sequence(1, 40), i -> sha2(concat(id, '-', i), 512)), '')"))
  val Fetched = 200
  val Joined = 1000

  def speed(folder: String)(implicit spark: SparkSession): Unit = {
    for ((name, value) <- Seq("num.parts" -> "2", "height" -> "2", "interval" -> "1000"))
      spark.conf.set(s"index.manager.btree.$name", value)
    spark.sparkContext.hadoopConfiguration.set("parquet.block.size", (128 << 20).toString)
    spark.sparkContext.hadoopConfiguration.set("parquet.block.size.row.check.min", "100")
    spark.sql("CREATE DATABASE IF NOT EXISTS dione")
    val told = for ((name, rows, text_) <- Measured) yield {
      val (data, index) = (s"dione.$name", s"dione.${name}_index")
      spark.sql(s"CREATE TABLE $data (k string, v string) PARTITIONED BY (dt string) STORED AS PARQUET")
      spark.range(rows).selectExpr("concat('https://example.org/', lower(hex(xxhash64(id)))) k", s"$text_ v").repartition(4)
        .createOrReplaceTempView("rows")
      spark.sql(s"INSERT INTO $data PARTITION (dt = '${Days(0)}') SELECT * FROM rows")
      val build = cost {
        IndexManager.createNew(IndexSpec(data, index, Seq("k"), Nil)).appendMissingPartitions()
      }
      val keys = spark.table(data).select("k").orderBy(xxhash64(col("k"))).limit(Joined).collect().map(_.getString(0))
      val manager = IndexManager.load(index)
      def fetch(key: String) = require(manager.fetch(Seq(key), Seq("dt" -> Days(0)), Some(Seq("v"))).nonEmpty)
      keys.takeRight(50).foreach(fetch)
      val before = read()
      val fetched = keys.take(Fetched).map(key => cost(fetch(key)))
      val bytes = (read() - before) / Fetched
      val sample = spark.createDataFrame(keys.map(key => (key, Days(0))).toSeq).toDF("k", "dt").cache()
      val loads = for (_ <- 1 to 3) yield cost {
        val other = IndexManager.load(index)
        require(other.loadByIndex(other.joinWithIndex(sample), Some(Seq("v"))).select("v").collect().length == Joined)
      }
      s"""{"table": "$name", "rows": $rows, "build": [${build._1}, ${build._2}],
         | "fetch_ms": ${median(fetched.map(_._1 * 1000))}, "fetch_cpu_ms": ${fetched.map(_._2).sum * 1000 / Fetched},
         | "fetch_bytes": $bytes, "load": [${loads.map(_._1).min}, ${loads.map(_._2).min}],
         | "keys": ${texts(keys)}}""".stripMargin
    }
    Files.write(Paths.get(s"$folder/speed.json"), told.mkString("[", ",\n", "]").getBytes(UTF_8))
  }

  /** Seconds, and seconds of CPU of this process. */
  def cost(work: => Unit): (Double, Double) = {
    val bean = java.lang.management.ManagementFactory.getOperatingSystemMXBean
      .asInstanceOf[com.sun.management.OperatingSystemMXBean]
    val (begin, cpu) = (System.nanoTime, bean.getProcessCpuTime)
    work
    ((System.nanoTime - begin) / 1e9, (bean.getProcessCpuTime - cpu) / 1e9)
  }

  def read(): Long = org.apache.hadoop.fs.FileSystem.getAllStatistics.asScala.map(_.getBytesRead).sum
  def median(values: Seq[Double]): Double = values.sorted.apply(values.length / 2)

  def other(value: Any): Any = value match {
    case text: String => text + "x"
    case number: Int => number + 1000000
    case number: Long => number + 1
  }
}
